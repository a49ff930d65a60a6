"""PyTorch, which autotune does not need; without it the benchmarks that compare with it end in one line."""

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
