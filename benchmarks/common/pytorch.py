"""PyTorch, which autotune does not need; without it, benchmarks that use it end with a one-line message."""

import sys

try:
    import torch
except ModuleNotFoundError:
    print(
        "this compares with PyTorch, which is not installed: pip install torch==2.13.0",
        file=sys.stderr,
    )
    sys.exit(2)

__all__ = ["torch"]
