"""A build worker: turns scheduled programs into shared libraries, or into their traits, one request at a time.

Request: `{"program": TVM JSON, "target": target JSON, "untuned": bool, "traits": bool, "programs": bool, "limits":
JSON of `Limits` or null, "output": path}`. With `programs`, it also compiles OpenCL programs into the folder that
keeps them. Answer: `{}` or `{"error": text}`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

from autotune.compiler.llvm import vector_math
from autotune.compiler.native import opencl_sidecar
from autotune.compiler.opencl_c import checked, improved_source
from autotune.compiler.programs import default_schedule, program_of, traits
from autotune.compiler.target import ARM_TRIPLE, Limits
from autotune.compiler.workers import Message, ToolKilled, of_outside, serve
from autotune.errors import ToolchainError

Linker = Callable[..., None]


@cache
def _target(text: str) -> Any:
    from tvm.target import Target

    content = json.loads(text)
    host = content.pop("host", None)
    return Target(content, host=host)


def linker(triple: str, *, fast: bool) -> Linker:
    """Returns the `fcompile` that links object files into a shared library for a triple.

    Args:
        triple: LLVM triple; empty for this machine.
        fast: Calls the linker directly, which takes a third of the compiler driver's time. The library may then be
            loaded only into a process that already has the C library.

    Raises:
        ToolchainError: There is no linker for the triple.
    """
    prefix = f"{ARM_TRIPLE}-" if ARM_TRIPLE in triple else ""
    tools = (
        (f"{prefix}ld", f"{prefix}g++", f"{prefix}gcc")
        if fast
        else (f"{prefix}g++", f"{prefix}gcc")
    )
    tool = next((path for path in map(shutil.which, tools) if path), None)
    if tool is None:
        package = "g++-aarch64-linux-gnu" if prefix else "g++"
        raise ToolchainError(
            f"no linker for {triple or 'this machine'}", hint=f"apt-get install {package}"
        )

    def link(
        output: str, objects: str | Sequence[str], options: object = None, **_: object
    ) -> None:
        files = [objects] if isinstance(objects, str) else list(objects)
        done = subprocess.run(
            [tool, "-shared", "-o", output, *files], capture_output=True, text=True, check=False
        )
        if of_outside(done.returncode):
            raise ToolKilled(f"{tool} was killed by signal {-done.returncode}")
        if done.returncode != 0:
            raise ToolchainError(f"{tool} failed: {done.stderr.strip()[-500:]}")

    link.output_format = "so"  # type: ignore[attr-defined]  # the attribute TVM looks for
    return link


def build(request: Message) -> Message:
    """Compiles and links one program."""
    import tvm

    target = _target(request["target"])
    program = program_of(request["program"])
    if request["untuned"]:
        program = default_schedule(program, target)
    if request["traits"]:
        Path(request["output"]).write_text(json.dumps(traits(program).to_json()), encoding="utf-8")
        return {}
    limits = request["limits"] and Limits.model_validate_json(json.dumps(request["limits"]))
    # The argument checks of the packed interface take as long to compile as a small kernel, so only exported
    # libraries have them.
    with (
        checked(limits, {"tirx.disable_assert": True}),
        nullcontext() if request["untuned"] else improved_source(program),
        nullcontext() if request["untuned"] else vector_math(),
    ):
        library = tvm.compile(program, target)
    triple = str(target.host.attrs.get("mtriple", "")) if target.host else ""
    library.export_library(request["output"], fcompile=linker(triple, fast=True))
    if request["programs"]:
        opencl_sidecar.load()
        opencl_sidecar.compile_programs(str(library.mod.imports[0].inspect_source()))
    return {}


if __name__ == "__main__":
    import tvm  # noqa: F401  # imported before the worker says it is ready

    serve(sys.argv[1:], build)
