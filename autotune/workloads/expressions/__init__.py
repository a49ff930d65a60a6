"""Kernels that are described instead of named: what they compute at one element, as an expression.

Element-wise work, reductions, windows, gathers and scatters are all written so. The compiler, the float64 reference
and the cost of a kernel are derived from the expression.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
