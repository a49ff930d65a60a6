"""Random inputs of a kernel and their float64 reference, as files that a run worker reads."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from autotune.compiler.target import Measure
from autotune.errors import RecordError
from autotune.workloads.operators import Kernel
from autotune.workloads.references import random_inputs, reference

TOLERANCE = Measure().tolerance
"""Largest relative error that counts as correct, unless a space sets another; see `Measure`."""


class ReferenceData:
    """Makes each kernel's data once, in a separate folder.

    Args:
        folder: Parent of the folders.
        seed: Seed of the inputs; each kernel derives its own.
        needed: Whether kernels run and so need data. If not, no files are made.
    """

    def __init__(self, folder: Path, seed: int, *, needed: bool = True) -> None:
        self._folder = folder
        self._seed = seed
        self._needed = needed

    def of(self, kernel: Kernel) -> Path:
        """Returns the kernel's folder with `input<i>.npy` and `expected<i>.npy`."""
        path = self._folder / kernel.name
        if path.is_dir() or not self._needed:
            return path
        inputs = random_inputs(kernel, self._seed ^ zlib.crc32(kernel.name.encode()))
        try:
            path.mkdir(parents=True)
            for index, array in enumerate(inputs):
                np.save(path / f"input{index}.npy", array)
            for index, array in enumerate(reference(kernel, inputs)):
                np.save(path / f"expected{index}.npy", array)
        except OSError as error:
            raise RecordError(
                f"the reference data of {kernel.name} cannot be written to {path}: {error}",
                hint="free some space there, or set TMPDIR to a folder that has it",
            ) from error
        return path
