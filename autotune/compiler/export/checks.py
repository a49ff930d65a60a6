"""Stored inputs and float64 results of one kernel per role, for examples and `verify`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    checks = tuple(check_of(number, kernel, tolerance) for number, kernel in enumerate(kernels))
    for check in checks:
        inputs = random_inputs(check.kernel, _SEED ^ zlib.crc32(check.kernel.name.encode()))
        outputs = [array.astype("<f8") for array in reference(check.kernel, inputs)]
        for files, arrays in ((check.inputs, inputs), (check.expected, outputs)):
            for file, array in zip(files, arrays, strict=True):
                (out / file).parent.mkdir(parents=True, exist_ok=True)
                (out / file).write_bytes(array.tobytes())
    return checks


def check_of(number: int, kernel: Kernel, tolerance: float) -> Check:
    """Returns the check of a kernel, with the names of its files.

    Args:
        number: Its number in the export.
        kernel: The kernel.
        tolerance: See `Check`.
    """
    folder = (DATA / f"{number}_{kernel.role}").as_posix()
    return Check(
        kernel,
        tuple(f"{folder}/input{i}.bin" for i in range(len(kernel.inputs))),
        tuple(f"{folder}/expected{i}.bin" for i in range(len(kernel.outputs))),
        tolerance,
    )
