"""Scheduled programs as data: candidates, traces, default schedules, and traits read from a program.

A trace from a file reaches TVM only through `replay_trace`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
