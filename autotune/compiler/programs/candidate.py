"""A schedule on its way from the search to the device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from autotune.compiler.programs.annotations import HALF
from autotune.workloads.operators import Kernel

DEFAULT = "default"
"""What events and results call the untuned default."""


def program_hash(module: Any) -> int:
    """The structural hash of an `IRModule`, 64 bits: equal for programs that differ in names only."""
    import tvm_ffi

    return int(tvm_ffi.structural_hash(module)) & 0xFFFFFFFFFFFFFFFF


def digest_of(kernel: Kernel, formulation: str, module: Any) -> str:
    """A candidate's identity, of its scheduled `IRModule`."""
    identity = f"{kernel.name}/{formulation}:{program_hash(module):016x}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule that waits to be measured.

    Attributes:
        digest: Identity: kernel, formulation and the scheduled program's structural hash.
        schedule: TVM's `MeasureCandidate`; None for a program that no search has made, such as the untuned default.
        program: The scheduled program as TVM JSON, ready for a build worker.
        trace: The schedule's trace as plain JSON data, enough to make the program again.
    """

    digest: str
    schedule: Any
    program: str
    trace: Any

    @classmethod
    def of(cls, digest: str, module: Any) -> Candidate:
        """A candidate that no search has made."""
        import tvm

        return cls(digest, None, str(tvm.ir.save_json(module)), None)

    @property
    def half(self) -> bool:
        """Whether it keeps operands in half precision on their way, and is allowed larger errors."""
        instructions = self.trace[0] if self.trace else ()
        return any(kind == "Annotate" and HALF in attrs for kind, _, attrs, _ in instructions)

    def scheduled(self) -> Any:
        """The program as a `tvm.IRModule`."""
        import tvm

        return tvm.ir.load_json(self.program)
