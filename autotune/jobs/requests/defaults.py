"""Defaults of options, for help texts to name. Imports nothing."""

DEFAULT_BATCH = 4
KERNEL_TRIALS = 256
SEARCH_TRIALS, JOINT_TRIALS = 40, 150
BLOCKS = 5
SEED = 1
LARGEST = 500
"""The largest space, in configurations, that `--exhaustive` measures completely."""
