"""A training step with tuned kernels: planned, compiled, bundled for a device, run and measured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
