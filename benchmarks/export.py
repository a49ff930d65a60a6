"""Exports of whole models: each format is checked without TVM, and the cost of calling a C function is measured.

Kernels for this processor come from a run with few trials. Those for aarch64 and OpenCL are untuned, because tuning
under emulation takes hours and yields no information.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.bars import Report, run

from autotune.compiler.export.exporter import Format, export
from autotune.compiler.export.objects import compile_objects
from autotune.compiler.export.variants import (
    ExportedKernel,
    Figures,
    Variant,
    variants_of_runs,
    with_safe_variant,
)
from autotune.compiler.native import native_build
from autotune.compiler.programs.scheduled import untuned_program
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find
from autotune.measurement import median
from autotune.workloads import StepForm, TrainingStep, tasks
from autotune.workloads.operators import Kernel

MODELS = ("squeezenet1_1", "mobilenet_v2")
BATCH = 1
NAME = "kernels"


def command(*words: str | Path) -> dict[str, Any]:
    """Runs an `autotune` command with --json and returns its answer, whatever its exit code is."""
    done = subprocess.run(
        [sys.executable, "-m", "autotune", *map(str, words), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def tuned(model: str, trials: int, logs: Path) -> Path:
    """Returns the folder of a run of a model on this processor: a finished one, or a new one."""
    finished = [path.parent for path in logs.glob("*-cpu-*/result.json")]
    if not finished:
        command(
            *("kernels", "--target", "cpu", "--no-step", "--model", model, "--batch", str(BATCH)),
            *("--trials", str(trials), "--logs", logs),
        )
        finished = [path.parent for path in logs.glob("*-cpu-*/result.json")]
    return max(finished)


def untuned(model: str, target: str) -> Variant:
    """Returns a model's untuned kernels."""
    spec = find(target)
    space = spaces.load(spec.space_path())
    graph = TrainingStep(model, BATCH).graph(StepForm(space.layout))

    def exported(kernel: Kernel) -> ExportedKernel:
        return ExportedKernel(
            kernel,
            lambda made: untuned_program(kernel, made),
            tuned=False,
            count=1,
            figures=Figures(),
        )

    variant = Variant("untuned", spec, space, tuple(exported(t.kernel) for t in tasks(graph)))
    if spec.family == "opencl":
        # The safe variant computes one element per work item: TVM's default is wrong for some fused updates, as
        # runs find.
        safe, _ = with_safe_variant([variant], spec)
        return Variant(variant.name, spec, safe.space, safe.kernels)
    return variant


def checked(
    report: Report, title: str, variants: Sequence[Variant], kind: Format, out: Path
) -> None:
    """Exports variants and verifies the export."""
    began = time.monotonic()
    manifest = export(variants, out, kind, name=NAME)
    export_s = time.monotonic() - began
    verdict = command("verify", out)
    results = verdict["results"]
    right = [one for one in results if one["status"] == "ok"]
    roles = {one["role"] for one in right}
    missing = {kernel["role"] for kernel in manifest["kernels"]} - roles
    report.bar(
        f"{title}: results that are wrong, and roles without one",
        len(results) - len(right) + len(missing),
        "at most",
        0,
        "",
    )
    report.row(
        export=title,
        device=verdict["device"],
        kernels=len(manifest["kernels"]),
        variants=[one["name"] for one in manifest["variants"]],
        export_s=export_s,
        bytes=sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
        results=results,
    )


def loads_tvm(example: Path, out: Path, *options: str) -> tuple[int, int]:
    """Builds and runs an example in an empty environment; returns exit code and number of TVM libraries opened."""
    with tempfile.TemporaryDirectory() as build:
        for words in (
            ["cmake", "-S", str(example), "-B", build, "-DCHECK_WERROR=ON", *options],
            ["cmake", "--build", build],
        ):
            subprocess.run(words, check=True, capture_output=True)
        done = subprocess.run(
            [f"{build}/check", str(out)],
            env={"PATH": os.environ["PATH"], "HOME": build, "LD_DEBUG": "files"},
            capture_output=True,
            text=True,
            check=False,
        )
        opened = [line for line in done.stderr.splitlines() if "calling init" in line]
        if not opened:
            raise RuntimeError("the loader did not tell what it opened")
        return done.returncode, sum("tvm" in line for line in opened)


def call_overhead_us(
    variants: Sequence[Variant], out: Path, threads: int
) -> tuple[str, float, float, float]:
    """Returns a kernel's name, microseconds of a whole call and of the bare kernel, and their median difference."""
    variant = variants[0]
    one = min(variant.kernels, key=lambda found: (found.kernel.bytes, found.kernel.name))
    kernel = one.kernel
    count = len(kernel.inputs) + len(kernel.outputs)
    operands = ", ".join(f"p[{index}]" for index in range(count))
    alone = Variant(variant.name, variant.target, variant.space, (one,))
    include = native_build.package_folder("tvm_ffi") / "include"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        compile_objects(alone, "raw__", work, lambda *_: None)
        words = {
            "NAME": f'"{kernel.name}"',
            "VARIANT": f'"{variant.name}"',
            "THREADS": str(threads),
            "CALL": f"{NAME}_{kernel.name}(context, {operands})",
            "RAW": f"__tvm_ffi_raw__{kernel.name}",
        }
        subprocess.run(
            [
                *(
                    "gcc",
                    "-std=c11",
                    "-D_GNU_SOURCE",
                    "-O2",
                    f"-I{out}/include",
                    "-isystem",
                    include,
                ),
                *(f"-D{key}={value}" for key, value in words.items()),
                *(Path(__file__).parent / "common" / "export_call.c", *sorted(work.glob("*.o"))),
                *(f"-L{out}/lib", f"-l{NAME}", f"-Wl,-rpath,{out}/lib", "-lm", "-o", work / "call"),
            ],
            check=True,
        )
        done = subprocess.run([work / "call"], capture_output=True, text=True, check=True)
    blocks = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    whole, raw = (median([block[side] for block in blocks]) / 1e3 for side in (0, 1))
    return kernel.name, whole, raw, median([block[0] - block[1] for block in blocks]) / 1e3


def measure_model(report: Report, model: str, logs: Path) -> None:
    source = tuned(model, 1 if report.quick else report.options.trials, logs / model)
    native = variants_of_runs([source], allow_stand_in=False)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        host, gpu = work / "c", work / "opencl"
        checked(report, f"{model}: tvm", native, "tvm", work / "tvm")
        checked(report, f"{model}: c, this host", native, "c", host)
        for title, options in (("shared", ()), ("static", ("-DCHECK_STATIC=ON",))):
            code, opened = loads_tvm(host / "example", host, *options)
            report.bar(
                f"{model}: c, {title}: exit code and libraries of TVM",
                code + opened,
                "at most",
                0,
                "",
            )
        for threads in (1, 2):
            name, whole, raw, over = call_overhead_us(native, host, threads)
            report.bar(
                f"{model}: c, a call over its kernel, {threads} thread{'s' * (threads > 1)}",
                over,
                "at most",
                5,
                "us",
            )
            report.row(kernel=name, threads=threads, whole_us=whole, raw_us=raw, over_us=over)
        checked(
            report,
            f"{model}: c, aarch64 under qemu-user",
            [untuned(model, "arm-cpu")],
            "c",
            work / "arm",
        )
        checked(report, f"{model}: opencl", [untuned(model, "opencl")], "opencl", gpu)
        code, opened = loads_tvm(gpu / "example", gpu)
        report.bar(
            f"{model}: opencl: exit code and libraries of TVM", code + opened, "at most", 0, ""
        )


def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = report.options.runs or Path(folder)
        for model in report.options.models or (["lenet"] if report.quick else MODELS):
            measure_model(report, model, logs)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", help="these instead")
    parser.add_argument("--trials", type=int, default=64, help="trials of each run [64]")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="take runs from DIR/MODEL where there are, and keep new ones there",
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
