"""Stored inputs and float64 results of one kernel per role, for examples and `verify`."""

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
    """A kernel whose inputs and outputs are stored in an export.

    Attributes:
        kernel: The kernel.
        inputs: Input files, relative to the export's folder: raw, little-endian, in the operands' types.
        expected: Output files, as raw float64.
        tolerance: Largest relative error that counts as correct, with a floor of 1e-3 of the largest magnitude.
    """

    kernel: Kernel
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    tolerance: float = TOLERANCE


def chosen(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Returns one kernel per role: the one with the least data, among compute-bound kernels if there are any."""
    found = []
    for role in sorted({kernel.role for kernel in kernels}):
        ours = [kernel for kernel in kernels if kernel.role == role]
        compute = [kernel for kernel in ours if kernel.is_compute]
        found.append(min(compute or ours, key=lambda kernel: (kernel.bytes, kernel.name)))
    return tuple(found)


def write_checks(
    kernels: Sequence[Kernel], out: Path, tolerance: float = TOLERANCE
) -> tuple[Check, ...]:
    """Writes inputs and results of kernels into an export's folder."""
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
