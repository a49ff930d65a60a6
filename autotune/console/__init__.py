"""Input and output of a job at a terminal or in a notebook: progress, the log, Ctrl-C.

Nothing is written to stdout here: it belongs to the results of commands.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
