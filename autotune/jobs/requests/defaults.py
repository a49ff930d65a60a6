"""Defaults of options, for help texts to name. Imports nothing."""

DEFAULT_BATCH = 4
KERNEL_TRIALS = 256
TRIALS_PER_KERNEL = 4
"""Of a step with many kernels, which would get too few otherwise."""
SEARCH_TRIALS, JOINT_TRIALS = 40, 150
BLOCKS = 5
SEED = 1
LARGEST = 500
"""The largest space, in configurations, that `--exhaustive` measures completely."""
