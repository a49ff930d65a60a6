"""Steps that a GPU shares in: OpenCL's device here is PoCL, which is the processor itself."""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import oclgrind
import pytest
from opencl_drivers import driver
from steps import changed_plan, drawn_feed, net, true_steps

from autotune.compiler.export.variants import ExportedKernel, Figures, Variant
from autotune.compiler.native import opencl_sidecar
from autotune.compiler.programs.scheduled import plain_gpu_program
from autotune.compiler.step import step_bundle
from autotune.compiler.step.gpu_side import GpuRuns, GpuSide
from autotune.compiler.step.tuned_runs import step_runs
from autotune.compiler.target import spaces, targets
from autotune.measurement.observation import Line
from autotune.measurement.step_runner import crossing_seconds
from autotune.workloads import Kernel, StepForm, StepGraph, formed, initial_values, tasks

STEPS = 3
Bundle = tuple[Path, Path, StepGraph, GpuSide, list[float]]


def gpu_kernels(graph: StepGraph) -> GpuRuns:
    """Every kernel of a step for OpenCL, untuned."""
    target = targets.find("opencl")
    space = spaces.load(target.space_path())

    def exported(kernel: Kernel) -> ExportedKernel:
        figures = Figures(tuned_ms=1.0)
        return ExportedKernel(kernel, lambda _: plain_gpu_program(kernel, 64), False, 1, figures)

    kernels = tuple(exported(task.kernel) for task in tasks(graph))
    return GpuRuns(Variant("gpu", target, space, kernels), "")


@pytest.fixture(
    scope="module", params=[pytest.param("momentum", marks=pytest.mark.exhaustive), "adam"]
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The program, the folder of a step, the step, what the GPU can do of it, and its losses in float64."""
    plain = net(4, norm=True, optimizer=request.param)
    graph, other = (formed(plain, StepForm(one)) for one in ("channels_last", "channels_first"))
    side = gpu_kernels(other).side(graph, [graph, other])
    values = initial_values(graph, 1)
    feeds = [drawn_feed(graph, number) for number in range(STEPS)]
    folder = tmp_path_factory.mktemp("gpu")
    with step_runs([]).library(graph) as library:
        step_bundle.write_bundle(folder, graph, library, values, feeds, side)
    losses, _ = true_steps(graph, values, feeds)
    program = step_bundle.runner("x86_64", android=False, gpu=True)
    return program, folder, graph, side, losses


def run(
    bundle: Bundle,
    settings: Path,
    calls: Sequence[int],
    memory: str,
    *words: str,
    steps: int = STEPS,
    **variables: str,
) -> list[str]:
    lines = ["setting - 2", f"memory {memory}", *(f"gpu {call}" for call in calls)]
    settings.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [bundle[0], bundle[1], "--settings", settings, "--steps", str(steps), *words],
        capture_output=True, text=True, timeout=300, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def losses(lines: list[str]) -> list[float]:
    return [float(m[1]) for m in (re.match(r"step \d+ loss (\S+)", line) for line in lines) if m]


def test_another_layout_is_found_and_its_tensors_are_reordered(bundle: Bundle) -> None:
    _, _, graph, side, _ = bundle
    assert len(side.kernels) > len(graph.nodes) // 2
    images = [order for order in side.orders.values() if len(order.shape) == 4]
    assert {order.axes for order in images} == {(0, 3, 1, 2), (3, 2, 0, 1)}


@pytest.mark.parametrize("memory", ["copy", "map"])
def test_losses_are_those_of_the_reference_wherever_calls_are_made(
    bundle: Bundle, tmp_path: Path, memory: str
) -> None:
    able = sorted(bundle[3].kernels)
    draw = random.Random(5)
    some = [sorted(draw.sample(able, len(able) // 2)) for _ in range(3)]
    for calls in (able, able[::2], able[1::2], able[:1], able[-1:], *some):
        found = losses(run(bundle, tmp_path / "settings", calls, memory))
        assert found == pytest.approx(bundle[4], rel=1e-4), calls


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"AUTOTUNE_OPENCL_PROGRAMS": "chosen"}, "chosen"),
        ({"XDG_CACHE_HOME": "cache", "HOME": "home"}, "cache/autotune/opencl-programs"),
        ({"XDG_CACHE_HOME": "", "HOME": "home"}, "home/.cache/autotune/opencl-programs"),
    ],
)
def test_programs_are_compiled_once_and_kept_for_later_commands(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    folder: str,
) -> None:
    """Each command puts the step into a new folder, which is gone at its end."""
    monkeypatch.delenv("AUTOTUNE_OPENCL_PROGRAMS")
    # What PoCL itself keeps goes where other tests have it, whatever the user's folder is.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    monkeypatch.setenv("POCL_CACHE_DIR", os.environ.get("POCL_CACHE_DIR", f"{cache}/pocl/kcache"))
    some, kept = sorted(bundle[3].kernels)[::4], []
    ways = {name: value and str(tmp_path / value) for name, value in variables.items()}
    for number in range(2):
        step = tmp_path / f"step{number}"
        shutil.copytree(bundle[1], step)
        run((bundle[0], step, *bundle[2:]), tmp_path / "settings", some, "copy", **ways)
        assert not (step / "programs").exists()
        files = (tmp_path / folder).iterdir()
        # A program that is compiled again is another file; one that is used has another time.
        kept.append({file: file.stat().st_ino for file in files})
    assert len(kept[0]) > 1
    assert kept[0] == kept[1]


def test_a_step_is_enqueued_without_waiting_and_compiles_nothing_a_second_time(
    bundle: Bundle, tmp_path: Path
) -> None:
    able, counts = sorted(bundle[3].kernels), tmp_path / "counts"
    ways = {
        "AUTOTUNE_OPENCL_LIBRARY": str(driver(tmp_path)),
        "AUTOTUNE_OPENCL_PROGRAMS": str(tmp_path / "programs"),
        "CALLS": str(counts),
    }

    def called(steps: int, **variables: str) -> tuple[int, int, int]:
        run(bundle, tmp_path / "settings", able, "copy", steps=steps, **ways, **variables)
        launched, waited, compiled = map(int, counts.read_text().split())
        return launched, waited, compiled

    assert len(able) == len(bundle[2].nodes)
    launched, waited, first = called(1)
    more_launched, more_waited, again = called(STEPS)
    _, _, updated = called(1, DRIVER="another version")
    assert more_launched - launched >= (STEPS - 1) * len(able)
    # A step waits for what it is fed, its loss and its end, whatever it calls.
    assert more_waited - waited <= 6 * (STEPS - 1) < len(able)
    assert again == 0 < first == updated


def test_mapped_memory_is_where_the_hosts_kernels_may_load_vectors(
    bundle: Bundle, tmp_path: Path
) -> None:
    """Else a step that CPU and GPU share in would crash in the CPU's first aligned load."""
    some = sorted(bundle[3].kernels)[::2]
    library = str(driver(tmp_path, ODD="1"))
    lines = run(bundle, tmp_path / "settings", some, "map", AUTOTUNE_OPENCL_LIBRARY=library)
    assert losses(lines) == pytest.approx(bundle[4], rel=1e-4)


@pytest.mark.parametrize("memory", ["copy", "map"])
def test_parts_of_buffers_that_overlap_are_not_given_back(
    bundle: Bundle, tmp_path: Path, memory: str
) -> None:
    """An NVIDIA driver crashes in that, after the last step."""
    able, library = sorted(bundle[3].kernels), str(driver(tmp_path, OVERLAPS="1"))
    lines = run(bundle, tmp_path / "settings", able, memory, AUTOTUNE_OPENCL_LIBRARY=library)
    assert losses(lines) == pytest.approx(bundle[4], rel=1e-4)
    crossings(bundle, AUTOTUNE_OPENCL_LIBRARY=library)


def checked(
    bundle: Bundle, folder: Path, calls: Sequence[int], memory: str, steps: int = STEPS
) -> tuple[list[str], str]:
    """What steps print, and what Oclgrind says of them.

    Each part of a buffer is a buffer of its own: Oclgrind forgets what was written of a buffer once the host writes
    a part of it, and what lies beyond a part lies in the whole.
    """
    lines = run(
        bundle, folder / "settings", calls, memory, steps=steps,
        AUTOTUNE_OPENCL_LIBRARY=str(driver(folder, APART="1")), **oclgrind.variables(folder),
    )  # fmt: skip
    return lines, oclgrind.said(folder)


@pytest.mark.slow
@pytest.mark.skipif(not oclgrind.ICD.is_file(), reason="needs Oclgrind: apt-get install oclgrind")
@pytest.mark.parametrize(
    ("memory", "every"),
    [("copy", 1), pytest.param("map", 1, marks=pytest.mark.exhaustive), ("map", 2)],
)
def test_no_kernel_of_a_step_reads_or_writes_what_it_must_not(
    bundle: Bundle, tmp_path: Path, memory: str, every: int
) -> None:
    """Those that change layouts too, and all on buffers that one call leaves to the next."""
    some, steps = (
        sorted(bundle[3].kernels)[::every],
        2,
    )  # The second one has the buffers of the first.
    lines, said = checked(bundle, tmp_path, some, memory, steps=steps)
    assert losses(lines) == pytest.approx(bundle[4][:steps], rel=1e-4)
    assert said == ""


@pytest.mark.slow
@pytest.mark.skipif(not oclgrind.ICD.is_file(), reason="needs Oclgrind: apt-get install oclgrind")
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("= 0.0f", "Invalid write"), ("+= 1.0f", "Invalid read")],
)
def test_a_kernel_that_leaves_its_tensor_is_seen(
    bundle: Bundle, tmp_path: Path, fault: str, complaint: str
) -> None:
    """By no more than the whole of the GPU's memory has. Only its calls are the GPU's."""
    step = tmp_path / "step"
    shutil.copytree(bundle[1], step)
    source = next((step / "gpu" / "kernels").glob("batch_norm_forward_*.cl"))
    calls = [
        call for call, one in sorted(bundle[3].kernels.items()) if one.kernel.name in source.stem
    ]
    text = source.read_text()
    (pointer,) = re.findall(r"__kernel void [^(]*\(__global float\* restrict (\w+)", text)[:1]
    body = text.index("{") + 1
    source.write_text(f"{text[:body]}\n  {pointer}[4096] {fault};{text[body:]}")
    _, said = checked((bundle[0], step, *bundle[2:]), tmp_path, calls, "copy", steps=1)
    assert complaint in said


@pytest.mark.parametrize("memory", ["copy", "map"])
def test_a_trace_tells_what_the_gpu_took_and_what_waited_for_it(
    bundle: Bundle, tmp_path: Path, memory: str
) -> None:
    able = sorted(bundle[3].kernels)
    for calls in (able, able[::2]):
        lines = run(bundle, tmp_path / "settings", calls, memory, "--trace")
        for traced, gpu, step in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            spans = [float(word) for word in traced.split()[2:]]
            reported = {
                int(w.split(":")[0]): list(map(float, w.split(":")[1:])) for w in gpu.split()[1:]
            }
            total = 1e3 * float(step.split()[-1])
            assert gpu.startswith("gpu ")
            assert {call for call, (ran, *_) in reported.items() if ran} <= set(calls)
            assert sum(ran for ran, *_ in reported.values()) <= 1.1 * total
            copied, mapped, reordered = (
                sum(one[way] for one in reported.values()) for way in range(2, 5)
            )
            assert reordered > 0
            assert (copied > 0 == mapped) if memory == "copy" else mapped > 0
            for call, (_, *before) in reported.items():
                if call not in calls and call < len(spans):
                    assert sum(before) <= spans[call] + 1.0


def crossings(bundle: Bundle, **variables: str) -> list[str]:
    done = subprocess.run(
        [bundle[0], bundle[1], "--crossings"],
        capture_output=True, text=True, timeout=300, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_crossings_are_measured_once_for_each_size_and_order(bundle: Bundle) -> None:
    _, _, graph, side, _ = bundle
    device, costs = crossing_seconds([Line(0.0, line) for line in crossings(bundle)])
    assert device.gpu == (opencl_sidecar.devices()[0].type == "gpu")
    used = {
        (graph.by_name[name].bytes, side.orders.get(name))
        for call in side.kernels
        for name in (*graph.nodes[call].inputs, *graph.nodes[call].outputs)
    }
    for of_kind in costs.values():
        kinds = [(graph.tensors[n].bytes, side.orders.get(graph.tensors[n].name)) for n in of_kind]
        assert len(kinds) == len(set(kinds))
        assert set(kinds) == used
        for number, cost in of_kind.items():
            ordered = graph.tensors[number].name in side.orders
            assert cost.to_gpu > 0
            assert cost.to_host > 0
            assert ordered or cost.reorder_to_gpu == cost.reorder_to_host == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\noffload 0 ", "\noffload 0 no_such_", "there is no kernel no_such_"),
        ("\ngpu gpu ", "\ngpu ../gpu ", "does not lie beside the plan"),
        (" 0,3,1,2\n", " 0,3,1,1\n", "no order of the tensor"),
        (" > ", " > > > ", "a call has three parts"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_line(
    bundle: Bundle, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    folder = changed_plan(bundle[1], tmp_path, old, new)
    settings = tmp_path / "settings"
    settings.write_text("setting - 1\ngpu 0\n")
    done = subprocess.run(
        [bundle[0], folder, "--settings", settings, "--steps", "1"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr


def test_a_program_without_opencl_says_so(bundle: Bundle, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text("setting - 1\ngpu 0\n")
    program = step_bundle.runner("x86_64", android=False)
    done = subprocess.run(
        [program, bundle[1], "--settings", settings, "--steps", "1"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "built without OpenCL" in done.stderr) == (1, True), done.stderr
