"""A step as files, and the program that runs them on a device without TVM."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from steps import changed_plan, drawn_feed, net, true_steps

from autotune.compiler.programs.scheduled import Winner
from autotune.compiler.step import step_bundle
from autotune.compiler.step.tuned_runs import step_runs
from autotune.compiler.target.targets import ARM_TRIPLE
from autotune.records import TaskResult
from autotune.workloads import StepForm, formed, initial_values, tasks

STEPS = 3
_QEMU = shutil.which("qemu-aarch64-static")
_COMMANDS = {"x86_64": [], "aarch64": [_QEMU or "", "-L", "/usr/aarch64-linux-gnu"]}


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def bundle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Path, list[float]]:
    """How the program is started, the folder of a step, and its losses in float64."""
    abi = request.param
    if abi == "aarch64" and (_QEMU is None or shutil.which("aarch64-linux-gnu-g++") is None):
        pytest.skip("qemu-user-static and g++-aarch64-linux-gnu are needed")
    graph = formed(net(4, norm=True, optimizer="momentum"), StepForm("channels_last"))
    values = initial_values(graph, 1)
    feeds = [drawn_feed(graph, number) for number in range(STEPS)]
    folder = tmp_path_factory.mktemp(abi)
    runs = step_runs([], triple=ARM_TRIPLE if abi == "aarch64" else "")
    with runs.library(graph) as library:
        step_bundle.write_bundle(folder, graph, library, values, feeds)
    losses, _ = true_steps(graph, values, feeds)
    program = step_bundle.runner(abi, android=False)
    return [*_COMMANDS[abi], str(program)], folder, losses


@pytest.fixture(scope="module")
def open_bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path, list[float]]:
    """A step whose kernels have two schedules each."""
    graph = formed(net(4, norm=True, optimizer="momentum"), StepForm("channels_last"))
    values = initial_values(graph, 1)
    feeds = [drawn_feed(graph, 0)]
    folder = tmp_path_factory.mktemp("open")
    task = TaskResult("", "", "", "", 1, None, None, None, None, None, 0, 0, {}, None, "", "")
    untuned = Winner(task, None)
    schedules = {one.kernel.name: [untuned, untuned] for one in tasks(graph)}
    with step_runs([]).library(graph, schedules=schedules) as library:
        step_bundle.write_bundle(folder, graph, library, values, feeds)
    program = step_bundle.runner("x86_64", android=False)
    return [str(program)], folder, true_steps(graph, values, feeds)[0]


def test_calls_are_made_as_the_settings_say(
    open_bundle: tuple[list[str], Path, list[float]], tmp_path: Path
) -> None:
    plan = (open_bundle[1] / "step.plan").read_text()
    calls = plan.count("\ncall ")
    assert plan.count("\nvariant ") == calls
    settings = tmp_path / "settings"
    settings.write_text("setting - 1\n" + "".join(f"use {n} {n % 2}\n" for n in range(calls)))
    found = losses(run(open_bundle, "--settings", settings, "--steps", 1))
    assert found == pytest.approx(open_bundle[2], rel=1e-4)
    for wrong, text in (
        ("use 0 2", "call 0 has no variant 2"),
        (f"use {calls} 0", "has no variant"),
    ):
        settings.write_text(f"setting - 1\n{wrong}\n")
        command, folder, _ = open_bundle
        done = subprocess.run(
            [*command, str(folder), "--settings", str(settings), "--steps", "1"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, text in done.stderr) == (1, True), done.stderr


def run(bundle: tuple[list[str], Path, Any], *words: object) -> list[str]:
    command, folder, _ = bundle
    done = subprocess.run(
        [*command, str(folder), *map(str, words)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def losses(lines: list[str]) -> list[float]:
    found = [re.fullmatch(r"step (\d+) loss (\S+) ms (\S+)", line) for line in lines]
    assert [int(m[1]) for m in found if m] == list(range(1, len(lines) + 1))
    return [float(m[2]) for m in found if m]


@pytest.mark.parametrize("threads", [1, 3])
def test_losses_are_those_of_the_reference(
    bundle: tuple[list[str], Path, list[float]], threads: int
) -> None:
    found = losses(run(bundle, "--threads", threads, "--steps", STEPS))
    assert found == pytest.approx(bundle[2], rel=1e-4)


def test_a_trace_has_the_time_of_every_call(bundle: tuple[list[str], Path, list[float]]) -> None:
    lines = run(bundle, "--steps", 4, "--trace")
    calls = (bundle[1] / "step.plan").read_text().count("\ncall ")
    for traced, step in zip(lines[::2], lines[1::2], strict=True):
        kind, start, *spans = traced.split()
        assert (kind, len(spans)) == ("calls", calls)
        assert float(start) > 0
        assert all(float(span) >= 0 for span in spans)
        # Each is rounded to a tenth of a microsecond.
        assert 1e-3 * sum(map(float, spans)) <= float(step.split()[-1]) + 1e-4 * calls


def test_settings_change_cores_and_threads_within_a_step(
    bundle: tuple[list[str], Path, list[float]], tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("setting - 1\nsetting 0 2\nat 0 0\nat 3 1\nat 5 0\n")
    found = losses(run(bundle, "--settings", settings, "--steps", STEPS))
    assert found == pytest.approx(bundle[2], rel=1e-4)


def test_settings_set_clocks_in_an_order_that_kernels_take(
    bundle: tuple[list[str], Path, list[float]], tmp_path: Path
) -> None:
    policy = tmp_path / "policy0"
    policy.mkdir()
    for name in ("scaling_max_freq", "scaling_min_freq"):
        (policy / name).write_text("1000000\n")
    settings = tmp_path / "settings"
    settings.write_text(f"setting - 1 {policy}=1000000\nsetting - 1 {policy}=2000000\nat 3 1\n")
    run(bundle, "--settings", settings, "--steps", 1)
    assert (policy / "scaling_max_freq").read_text().strip() == "2000000"
    assert (policy / "scaling_min_freq").read_text().strip() == "2000000"


def test_the_cost_of_a_change_is_measured_for_every_pair(
    bundle: tuple[list[str], Path, list[float]], tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("setting - 1\nsetting 0 1\nsetting - 2\n")
    done = subprocess.run(
        [*bundle[0], "--switches", str(settings)], capture_output=True, text=True, timeout=120
    )
    found = [re.fullmatch(r"switch (\d) (\d) us (\S+)", line) for line in done.stdout.splitlines()]
    assert [(m[1], m[2]) for m in found if m] == list(itertools.permutations("012", 2))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\nloss ", "\nlosses ", "'losses' is not known"),
        ("\ncall 0 ", "\ncall 999 ", "there is no kernel 999"),
        ("\narena ", "\narena 1", ""),
        ("\ntensor 0 f32", "\ntensor 99999999999 f32", "outside of the arena"),
        ("part0.so", "../part0.so", "beside the plan"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_line(
    bundle: tuple[list[str], Path, list[float]],
    tmp_path: Path,
    old: str,
    new: str,
    complaint: str,
) -> None:
    folder = changed_plan(bundle[1], tmp_path, old, new)
    done = subprocess.run(
        [*bundle[0], str(folder), "--steps", "1"], capture_output=True, text=True, timeout=60
    )
    if complaint:
        assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr
    else:  # A larger arena is none the worse.
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [[], ["x", "y"], ["x", "--threads", "0"], ["x", "--speed", "9"]])
def test_a_wrong_command_line_is_exit_code_2(
    bundle: tuple[list[str], Path, list[float]], words: list[str]
) -> None:
    done = subprocess.run([*bundle[0], *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "usage:" in done.stderr) == (2, True)
