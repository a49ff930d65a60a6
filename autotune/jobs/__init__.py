"""Jobs: they carry out what a command asks for, from its request to its result.

A request is a frozen dataclass. It is made once, from options or from a run's file, and validated in one place.
One function or object carries it out and returns the result. Nothing is printed on stdout here.
"""
