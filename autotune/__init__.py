"""autotune: the auto-tuner for training neural networks on phones and boards."""

__version__ = "0.1.0"

DISTRIBUTION = "autotune-training"
"""The name that package managers know it by; `autotune` is another project's there."""
