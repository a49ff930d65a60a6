"""Rounds of `verify`: first the checks that an export stores, then those of its other kernels, some at a time."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from autotune.compiler.export import c_source, opencl_format
from autotune.compiler.export.checks import DATA, write_checks
from autotune.compiler.export.findings import ResultFinding
from autotune.compiler.export.manifest import MANIFEST, check_entry
from autotune.compiler.export.texts import template, write
from autotune.compiler.export.variants import SAFE
from autotune.records import write_json
from autotune.workloads.operators import Kernel

_ROUND_BYTES = 256 << 20
_ROUND_FLOPS = 10**11
_USUAL_S = 600.0
_SLOWEST_FLOPS_A_S = 1e8
_COPIES = 6  # Memory of a reference, in copies of its operands (float64, intermediates).


@dataclass(frozen=True)
class Round:
    """Kernels that one run of an example checks.

    Attributes:
        kernels: The kernels.
        stored: Whether the export has their inputs and results, so that its own example checks them.
    """

    kernels: tuple[Kernel, ...]
    stored: bool

    @property
    def limit_s(self) -> float:
        """Time limit in seconds, enough for untuned kernels under emulation."""
        return _USUAL_S + sum(kernel.flops for kernel in self.kernels) / _SLOWEST_FLOPS_A_S


def chosen_kernels(
    content: Mapping[str, Any], kernels: Mapping[str, Kernel], sample: int | None
) -> tuple[Kernel, ...]:
    """Returns the kernels to check: those that the export stores, then the others in an arbitrary fixed order."""
    stored = [check["kernel"] for check in content["checks"]]
    others = sorted(
        kernels.keys() - set(stored), key=lambda name: hashlib.sha256(name.encode()).digest()
    )
    return tuple(kernels[name] for name in dict.fromkeys((*stored, *others)))[:sample]


def rounds(content: Mapping[str, Any], wanted: Sequence[Kernel]) -> Iterator[Round]:
    """Divides kernels into runs of an example, so that little disk space is used at once."""
    stored = {check["kernel"] for check in content["checks"]}
    own = tuple(kernel for kernel in wanted if kernel.name in stored)
    rest = list(wanted)
    if own and len(own) == len(stored):
        yield Round(own, stored=True)
        rest = [kernel for kernel in wanted if kernel.name not in stored]
    part: list[Kernel] = []
    for kernel in rest:
        if part and (
            sum(2 * one.bytes for one in (*part, kernel)) > _ROUND_BYTES
            or sum(one.flops for one in (*part, kernel)) > _ROUND_FLOPS
        ):
            yield Round(tuple(part), stored=False)
            part = []
        part.append(kernel)
    if part:
        yield Round(tuple(part), stored=False)


def beyond_memory(kernels: Sequence[Kernel]) -> dict[str, ResultFinding]:
    """Returns findings for kernels whose reference does not fit into this machine's memory, by name."""
    free = psutil.virtual_memory().available
    return {
        kernel.name: ResultFinding(
            "", kernel.name, kernel.role, "not checked", None,
            f"its reference takes about {_COPIES * kernel.bytes / 1e9:.1f} GB of memory; {free / 1e9:.1f} are free",
        )
        for kernel in kernels
        if _COPIES * kernel.bytes > free
    }  # fmt: skip


def prepare(copy: Path, content: Mapping[str, Any], own: Round) -> Round:
    """Makes the example in an export's private copy check the kernels of a round; returns the round.

    Inputs and results that the export does not store are computed here.
    """
    if own.stored:
        return own
    shutil.rmtree(copy / DATA, ignore_errors=True)
    checks = write_checks(own.kernels, copy, content["checks"][0]["tolerance"])
    name = content["name"]
    if content["format"] == "tvm":
        write_json(copy / MANIFEST, {**content, "checks": [check_entry(one) for one in checks]})
    elif content["format"] == "c":
        words = {**c_source.words(name), **c_source.example(name, checks)}
        write(copy / "example" / "main.c", template("c/main.c.txt", words))
    else:
        words = {**c_source.words(name), "SAFE": SAFE, **opencl_format.example(checks)}
        write(copy / "example" / "main.cc", template("opencl/main.cc.txt", words))
    return own


def without_result(
    content: Mapping[str, Any], wanted: Sequence[Kernel], results: Sequence[ResultFinding]
) -> list[ResultFinding]:
    """Returns findings for kernels and variants that the example did not report.

    A variant that it skipped needs none of its kernels reported.
    """
    skipped = {one.variant for one in results if one.status == "skipped" and one.kernel is None}
    has = {entry["name"]: set(entry["figures"]) for entry in content["kernels"]}
    with_result = {one.kernel for one in results}
    ran = {one.variant for one in results}
    due = {name for kernel in wanted for name in has[kernel.name]}
    return [
        ResultFinding(name, None, None, "not checked", None, "the example ran none of its kernels")
        for name in sorted(due - ran)
    ] + [
        ResultFinding(
            "",
            kernel.name,
            kernel.role,
            "not checked",
            None,
            "the example reported nothing about it",
        )
        for kernel in wanted
        if kernel.name not in with_result and has[kernel.name] - skipped
    ]
