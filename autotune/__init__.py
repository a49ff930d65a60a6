"""autotune: the auto-tuner for training neural networks on phones and boards."""

__version__ = "0.1.0"
