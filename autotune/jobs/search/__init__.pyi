from .searching import Search

__all__ = [
    "Search",
]
