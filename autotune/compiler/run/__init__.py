"""One kernel run from request to result: budget, trials, warm start, final benchmark, records, resume."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
