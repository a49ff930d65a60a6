"""autotune: the auto-tuner for training neural networks on phones and boards.

import autotune

result = autotune.tune_kernels("lenet", batch=4, trials=64)
result.export("build/lenet", format="c")
"""

import lazy_loader

__version__ = "0.1.0"

DISTRIBUTION = "autotune-training"
"""The name of the package in registries, where `autotune` is another project."""

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["DISTRIBUTION", "__version__"]
