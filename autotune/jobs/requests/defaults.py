"""What is taken for options that are not given, where help names it. Imports nothing."""

DEFAULT_BATCH = 4
KERNEL_TRIALS = 256
SEARCH_TRIALS, JOINT_TRIALS = 40, 150
BLOCKS = 5
SEED = 1
LARGEST = 500
"""Configurations of a space that `--exhaustive` measures as a whole."""
