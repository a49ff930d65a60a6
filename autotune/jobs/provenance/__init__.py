"""What runs and results record of themselves, and what is said of a run that was interrupted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
