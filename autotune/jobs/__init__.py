"""Jobs: what a command does, from its request to its result.

Each request is a frozen dataclass, made once from options or from a run's file, and validated in one place. One
function or object carries it out, and returns what was found. Nothing is printed on stdout here.
"""
