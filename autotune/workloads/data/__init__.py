"""Training data: samples from files in common formats, generated samples, and batches of both."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
