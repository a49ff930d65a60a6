"""Devices: the phones, boards and hosts that kernels are tuned for, behind one protocol."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
