"""Compiles a variant's kernels to object files, each with the options that it was measured with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from autotune.compiler.export.variants import ExportedKernel, Variant
from autotune.compiler.llvm import vector_math
from autotune.compiler.target import tvm_target

_KERNELS_AT_ONCE = 12
Report = Callable[[str, int, int], None]
"""Receives progress: the name of a phase, the number of steps done, and their total."""


def target_of(variant: Variant, *, tuned: bool) -> Any:
    """Returns the TVM target that a variant's kernels are compiled for."""
    return tvm_target(
        variant.target, variant.space.limits, variant.space.compile if tuned else None
    )


def groups(variant: Variant, at_once: int) -> Iterator[tuple[Any, Sequence[ExportedKernel]]]:
    """Yields a variant's kernels in groups that share a target, each of at most `at_once` kernels."""
    for tuned in (True, False):
        ours = [one for one in variant.kernels if one.tuned == tuned]
        if not ours:
            continue
        target = target_of(variant, tuned=tuned)
        for start in range(0, len(ours), at_once):
            yield target, ours[start : start + at_once]


def code_of(kernels: Sequence[ExportedKernel]) -> AbstractContextManager[None]:
    """Returns a context in which TVM compiles a group of kernels as they were measured."""
    return vector_math() if kernels[0].tuned else nullcontext()


def module_of(kernels: Sequence[ExportedKernel], target: Any, symbol: Callable[[str], str]) -> Any:
    """Returns a `tvm.IRModule` of scheduled kernels, each under its symbol."""
    import tvm

    return tvm.IRModule(
        {
            symbol(one.kernel.name): one.program(target)["main"].with_attr(
                "global_symbol", symbol(one.kernel.name)
            )
            for one in kernels
        }
    )


def compile_objects(variant: Variant, prefix: str, folder: Path, report: Report) -> None:
    """Writes a variant's kernels as object files, which define `__tvm_ffi_<prefix><kernel>`.

    The objects do not check their arguments; the caller must.
    """
    import tvm

    done = 0
    for number, (target, kernels) in enumerate(groups(variant, _KERNELS_AT_ONCE)):
        module = module_of(kernels, target, lambda name: f"{prefix}{name}")
        with tvm.transform.PassContext(config={"tirx.disable_assert": True}), code_of(kernels):
            compiled = tvm.compile(module, target)
        with _collecting(folder, f"{prefix}{number:03d}") as collect:
            compiled.export_library(str(folder / ".collected.so"), fcompile=collect)
        done += len(kernels)
        report(f"compiling {variant.name}", done, len(variant.kernels))


@contextmanager
def _collecting(folder: Path, stem: str) -> Iterator[Any]:
    """Yields a linker for TVM that keeps the object files instead of linking them."""

    def collect(
        output: str, objects: str | Sequence[str], options: object = None, **_: object
    ) -> None:
        files = [objects] if isinstance(objects, str) else list(objects)
        for index, file in enumerate(files):
            shutil.copyfile(file, folder / f"{stem}_{index}.o")
        Path(output).touch()

    collect.output_format = "so"  # type: ignore[attr-defined]  # the attribute TVM looks for
    try:
        yield collect
    finally:
        (folder / ".collected.so").unlink(missing_ok=True)
