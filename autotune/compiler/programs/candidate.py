"""A schedule, from the search to the device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from autotune.compiler.programs.annotations import HALF
from autotune.compiler.programs.plain_data import plain
from autotune.compiler.programs.program_text import program_of, program_text
from autotune.workloads.operators import Kernel

DEFAULT = "default"
"""Name of the untuned default in events and results."""


def program_hash(module: Any) -> int:
    """Returns the structural hash of an `IRModule`, 64 bits: equal for programs that differ only in names."""
    import tvm_ffi

    return int(tvm_ffi.structural_hash(module)) & 0xFFFFFFFFFFFFFFFF


def digest_of(kernel: Kernel, formulation: str, module: Any) -> str:
    """Returns a candidate's identity, from its scheduled `IRModule`."""
    identity = f"{kernel.name}/{formulation}:{program_hash(module):016x}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule to be measured.

    Attributes:
        digest: Identity: kernel, formulation and the scheduled program's structural hash.
        schedule: TVM's `MeasureCandidate`; None for a program that is not from a search, such as the untuned
            default.
        program: The scheduled program as TVM JSON, ready for a build worker.
        trace: The schedule's trace as plain JSON data, from which the program can be rebuilt.
    """

    digest: str
    schedule: Any
    program: str
    trace: Any

    @classmethod
    def of(cls, digest: str, module: Any) -> Candidate:
        """Returns a candidate that is not from a search."""
        return cls(digest, None, program_text(module), None)

    @classmethod
    def scheduled_by(cls, kernel: Kernel, formulation: str, schedule: Any) -> Candidate:
        """Returns the candidate of a search: a formulation of a kernel, with a `MeasureCandidate`."""
        module = schedule.sch.mod
        digest = digest_of(kernel, formulation, module)
        trace = plain(schedule.sch.trace.as_json())
        return cls(digest, schedule, program_text(module), trace)

    @property
    def half(self) -> bool:
        """Whether it stores operands in half precision on their way, so that larger errors are allowed."""
        instructions = self.trace[0] if self.trace else ()
        return any(kind == "Annotate" and HALF in attrs for kind, _, attrs, _ in instructions)

    def scheduled(self) -> Any:
        """Returns the program as a `tvm.IRModule`."""
        return program_of(self.program)
