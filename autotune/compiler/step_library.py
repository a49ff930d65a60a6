"""The libraries of a step: every distinct kernel compiled, with its large temporaries as operands."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.compiler.builder import Builder, BuildRequest, target_text
from autotune.compiler.host import cores
from autotune.compiler.scheduled import Winner, untuned_program
from autotune.compiler.scratch_operands import Workspace, with_scratch_operands, workspace
from autotune.compiler.spaces import Space
from autotune.compiler.targets import TargetSpec, tvm_target
from autotune.compiler.workers import scratch
from autotune.errors import AutotuneError
from autotune.workloads.operators import Kernel, TensorSpec

_KERNELS_A_PART = 12
_TIMEOUT_S_A_KERNEL = 30.0
_REPORT_S = 0.5
_INDEX = "index.json"
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class StepLibrary:
    """A step's kernels, compiled.

    Attributes:
        parts: Shared libraries.
        symbols: Where each kernel is, by its name, which is its symbol too: an index of ``parts``.
        scratch: Scratch operands that a kernel takes after its outputs, by kernel name; none where it is missing.
        workspaces: What each kernel asks the runtime for while it runs, by its name.
        untuned: Names of the kernels that have no tuned schedule.
    """

    parts: tuple[Path, ...]
    symbols: Mapping[str, int]
    scratch: Mapping[str, tuple[TensorSpec, ...]]
    workspaces: Mapping[str, Workspace]
    untuned: tuple[str, ...]

    def scratch_bytes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of the scratch operands by kernel name."""
        return {name: tuple(s.bytes for s in specs) for name, specs in self.scratch.items()}


@contextmanager
def step_library(
    kernels: Sequence[Kernel],
    winners: Mapping[str, Winner],
    target: TargetSpec,
    space: Space,
    cache: Path | None,
    report: Report = lambda done, total: None,
) -> Iterator[StepLibrary]:
    """Compiles kernels, each with the options that it was measured with, unless the cache has them.

    Args:
        kernels: Distinct kernels.
        winners: How each is to be computed; one that is missing gets the untuned default.
        target: What to compile for.
        space: Its space: limits and compiler options.
        cache: Folder that keeps the libraries; None compiles them into a temporary one.
        report: Hears of libraries done, of all.

    Yields:
        The libraries, valid inside the context.

    Raises:
        AutotuneError: A kernel could not be compiled.
    """
    chosen = {kernel.name: winners.get(kernel.name) for kernel in kernels}
    digest = _digest(chosen, target, space)
    work = scratch()
    try:
        folder = work / digest if cache is None else cache / digest
        if not (folder / _INDEX).exists():
            folder.mkdir(parents=True, exist_ok=True)
            _compile(kernels, chosen, target, space, folder, work, report)
        yield _read(folder, chosen)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _digest(chosen: Mapping[str, Winner | None], target: TargetSpec, space: Space) -> str:
    content = {
        "kernels": {n: w.task.digest if w else None for n, w in sorted(chosen.items())},
        "target": dict(target.tvm),
        "triple": target.triple,
        "compile": space.compile.model_dump(mode="json"),
        "tvm": version("apache-tvm"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _read(folder: Path, chosen: Mapping[str, Winner | None]) -> StepLibrary:
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    return StepLibrary(
        tuple(folder / name for name in index["parts"]),
        index["symbols"],
        {
            name: tuple(TensorSpec(s["name"], tuple(s["shape"]), s["dtype"]) for s in specs)
            for name, specs in index["scratch"].items()
        },
        {
            name: Workspace(tuple(w["alone"]), tuple(w["shared"]))
            for name, w in index["workspaces"].items()
        },
        tuple(name for name, winner in chosen.items() if winner is None or not winner.tuned),
    )


def _compile(
    kernels: Sequence[Kernel],
    chosen: Mapping[str, Winner | None],
    target: TargetSpec,
    space: Space,
    folder: Path,
    work: Path,
    report: Report,
) -> None:
    builder = Builder(
        workers=cores(), timeout_s=_TIMEOUT_S_A_KERNEL * _KERNELS_A_PART, temporary=work
    )
    try:
        builder.start()
        index = _build_parts(builder, kernels, chosen, target, space, folder, report)
    finally:
        builder.stop()
    (folder / _INDEX).write_text(json.dumps(index), encoding="utf-8")


def _build_parts(
    builder: Builder,
    kernels: Sequence[Kernel],
    chosen: Mapping[str, Winner | None],
    target: TargetSpec,
    space: Space,
    folder: Path,
    report: Report,
) -> dict[str, Any]:
    import tvm

    tuned_target = tvm_target(target, space.limits, space.compile)
    plain_target = tvm_target(target, space.limits)
    found: dict[str, StepFunction] = {}
    symbols: dict[str, int] = {}
    requests: list[BuildRequest] = []
    for options, group in (
        (tuned_target, [k for k in kernels if _is_tuned(chosen[k.name])]),
        (plain_target, [k for k in kernels if not _is_tuned(chosen[k.name])]),
    ):
        for start in range(0, len(group), _KERNELS_A_PART):
            functions = {}
            for kernel in group[start : start + _KERNELS_A_PART]:
                one = step_function(kernel, chosen[kernel.name], options)
                symbols[kernel.name] = len(requests)
                functions[kernel.name] = one.function.with_attr("global_symbol", kernel.name)
                found[kernel.name] = one
            module = str(tvm.ir.save_json(tvm.IRModule(functions)))
            path = folder / f"part{len(requests)}.so"
            requests.append(BuildRequest(module, target_text(options), path))
    failures = builder.submit(requests)
    while not wait([failures], timeout=_REPORT_S).done:
        report(sum(request.output.exists() for request in requests), len(requests))
    for failure in filter(None, failures.result()):
        raise AutotuneError(
            f"the step's kernels cannot be compiled: {failure.message}",
            hint="run it again; if it fails again, report it",
        )
    return {
        "parts": [request.output.name for request in requests],
        "symbols": symbols,
        "scratch": {
            name: [{"name": s.name, "shape": list(s.shape), "dtype": s.dtype} for s in one.scratch]
            for name, one in found.items()
            if one.scratch
        },
        "workspaces": {name: asdict(one.workspace) for name, one in found.items()},
    }


@dataclass(frozen=True)
class StepFunction:
    """A kernel as a step calls it.

    Attributes:
        function: The scheduled `tvm.tirx.PrimFunc`.
        scratch: Operands that it takes after its outputs.
        workspace: What it asks the runtime for beside them.
    """

    function: Any
    scratch: tuple[TensorSpec, ...]
    workspace: Workspace


def step_function(kernel: Kernel, winner: Winner | None, target: Any) -> StepFunction:
    """A kernel as its winner, or the untuned default, computes it in a step."""
    program = winner.program(kernel, target) if winner else untuned_program(kernel, target)
    function, scratch_operands = with_scratch_operands(program["main"])
    return StepFunction(function, scratch_operands, workspace(function))


def _is_tuned(winner: Winner | None) -> bool:
    return winner is not None and winner.tuned
