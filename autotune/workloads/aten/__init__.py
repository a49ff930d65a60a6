"""Whole training steps of PyTorch as graphs of ATen operators, and how these become step graphs.

No module here uses PyTorch. `workloads.capture` traces a step into the plain data that these read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
