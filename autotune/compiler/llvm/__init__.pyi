from .vector_math import vector_math

__all__ = ["vector_math"]
