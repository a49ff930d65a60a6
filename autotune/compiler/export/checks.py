"""Stored inputs and float64 results of one kernel of each role, which examples and `verify` compare with."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.compiler.runners import TOLERANCE
from autotune.workloads.operators import Kernel
from autotune.workloads.references import random_inputs, reference

_SEED = 1
DATA = Path("example") / "data"


@dataclass(frozen=True)
class Check:
    """A kernel whose inputs and outputs an export holds.

    Attributes:
        kernel: The kernel.
        inputs: Files below the export's folder: raw, little-endian, of the operands' own types.
        expected: Files of the outputs, as raw float64.
        tolerance: Largest relative error of a right result, with a floor of 1e-3 of the largest magnitude.
    """

    kernel: Kernel
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    tolerance: float = TOLERANCE


def chosen(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """One kernel a role: of those that compute much, if there are any, the one with the least data."""
    found = []
    for role in sorted({kernel.role for kernel in kernels}):
        ours = [kernel for kernel in kernels if kernel.role == role]
        compute = [kernel for kernel in ours if kernel.is_compute]
        found.append(min(compute or ours, key=lambda kernel: (kernel.bytes, kernel.name)))
    return tuple(found)


def write_checks(
    kernels: Sequence[Kernel], out: Path, tolerance: float = TOLERANCE
) -> tuple[Check, ...]:
    """Writes inputs and results of kernels below an export's folder."""
    checks = []
    for number, kernel in enumerate(kernels):
        folder = DATA / f"{number}_{kernel.role}"
        (out / folder).mkdir(parents=True)
        inputs = random_inputs(kernel, _SEED ^ zlib.crc32(kernel.name.encode()))
        outputs = reference(kernel, inputs)
        checks.append(
            Check(
                kernel,
                tuple(_write(out, folder / f"input{i}.bin", a) for i, a in enumerate(inputs)),
                tuple(
                    _write(out, folder / f"expected{i}.bin", a.astype("<f8"))
                    for i, a in enumerate(outputs)
                ),
                tolerance,
            )
        )
    return tuple(checks)


def _write(out: Path, file: Path, array: NDArray[Any]) -> str:
    (out / file).write_bytes(array.tobytes())
    return file.as_posix()
