"""Jobs: what a command does, from its request to its result.

Each request is a frozen dataclass, made once from options or from a run's file, and validated in one place. One
function or object carries it out, and returns what was found. Nothing is printed on stdout here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
