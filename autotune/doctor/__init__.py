"""Checks what the machine has and lacks for each kind of work, and gives the command that fixes it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
