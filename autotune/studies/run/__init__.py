"""A study from request to result: shared trials, storage, repeats and the final benchmark."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
