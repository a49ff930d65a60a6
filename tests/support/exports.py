"""Exports that tests make, and programs that use them."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.export.exporter import Format, export
from autotune.compiler.export.variants import ExportedKernel, Figures, Variant
from autotune.compiler.programs.scheduled import untuned_program
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find
from autotune.workloads.operators import Kernel

DATA = Path(__file__).parents[1] / "data" / "export"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic")


def untuned_variant(target: str, kernels: Sequence[Kernel], name: str = "v") -> Variant:
    """A variant that no run has made: every kernel as TVM compiles it by itself."""
    spec = find(target)

    def exported(kernel: Kernel) -> ExportedKernel:
        return ExportedKernel(
            kernel,
            lambda made: untuned_program(kernel, made),
            tuned=False,
            count=1,
            figures=Figures(),
        )

    return Variant(
        name, spec, spaces.load(spec.space_path()), tuple(exported(kernel) for kernel in kernels)
    )


def exported(
    variants: Sequence[Variant], out: Path, kind: Format, **options: Any
) -> dict[str, Any]:
    """Writes an export named `kernels`."""
    return export(variants, out, kind, name="kernels", **options)


def compiled(source: Path, out: Path, *arguments: str, compiler: str = "gcc") -> Path:
    """A program, compiled without a warning."""
    standard = "-std=c99" if source.suffix == ".c" else "-std=c++17"
    command = [compiler, standard, "-D_GNU_SOURCE", "-O1", *WARNINGS, str(source)]
    done = subprocess.run(
        [*command, "-o", str(out), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def said(program: Path, *arguments: str | Path, code: int = 0, **environment: str) -> str:
    """What a program prints, with nothing of this process's environment."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def with_cluster(run: Path, copy: Path, cluster: str) -> Path:
    """A copy of a run that says that it was for a cluster."""
    shutil.copytree(run, copy)
    about = json.loads((copy / "run.json").read_text())
    about["request"]["cores"] = {"cluster": cluster, "cpus": [0], "emulated": ""}
    (copy / "run.json").write_text(json.dumps(about))
    return copy
