"""TVM is imported without PyTorch, which it would import wherever that is installed."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install torch")


@pytest.mark.parametrize(
    ("before", "expected"), [("", "False"), ("import torch", "True")], ids=["alone", "after"]
)
def test_pytorch_is_there_only_where_somebody_imported_it(before: str, expected: str) -> None:
    program = f"""{before}
import sys
import autotune.compiler
import tvm
print("torch" in sys.modules)
import torch
print(float(torch.ones(2).sum()), tvm.tirx.const(2, "int32"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [expected, "2.0", "2"]
