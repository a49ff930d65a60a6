"""Plans: the schedule, the cores and the clocks of each call of a step, as files that others can execute."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
