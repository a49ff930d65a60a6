"""A training step, compiled and run: against the float64 evaluation of its graph, and in its memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from steps import drawn_feed, early_update, net, true_steps

from autotune.compiler.programs.scheduled import Winner
from autotune.compiler.step.step import open_step
from autotune.compiler.step.step_library import step_library
from autotune.compiler.step.tuned_runs import StepRuns, fitting_form, form_sizes, step_runs
from autotune.errors import RecordError, ToolchainError, UsageError
from autotune.records import TaskResult
from autotune.workloads import (
    Kernel,
    StepForm,
    StepGraph,
    TrainingStep,
    formed,
    initial_values,
    max_relative_error,
    tasks,
)

STEPS = 3


@pytest.fixture(scope="module")
def runs() -> StepRuns:
    return step_runs([])


def expected(graph: StepGraph, values: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Losses and last values of some steps, in float64."""
    feeds = [drawn_feed(graph, number) for number in range(STEPS)]
    losses, now = true_steps(graph, values, feeds)
    return losses, {old: graph.by_name[old].restored(now[old]) for old in graph.updates}


@pytest.mark.parametrize(
    ("optimizer", "form"),
    [
        ("sgd", StepForm("channels_first")),
        ("sgd", StepForm("channels_last", 2, 2)),
        ("momentum", StepForm("channels_last", 1, 0)),
        ("adam:learning_rate=0.01", StepForm("channels_last", 2, 0)),
    ],
)
def test_steps_follow_their_float64_evaluation(
    runs: StepRuns, optimizer: str, form: StepForm
) -> None:
    graph = formed(net(4 // form.micro_batches, norm=True, optimizer=optimizer), form)
    values = initial_values(graph, 1)
    losses, last = expected(graph, values)
    with runs.library(graph) as library, open_step(graph, library, values) as session:
        times = session.run([drawn_feed(graph, number) for number in range(STEPS)])
        found = session.read([*graph.updates])
    assert times.losses == pytest.approx(losses, rel=1e-5)
    assert len(times.seconds) == STEPS
    for name, value in last.items():
        assert max_relative_error(found[name], value) < 1e-3, name


def test_an_update_out_of_place_is_there_in_the_next_step(runs: StepRuns) -> None:
    graph = early_update()
    values = initial_values(graph, 1)
    losses, last = expected(graph, values)
    with runs.library(graph) as library, open_step(graph, library, values) as session:
        times = session.run([drawn_feed(graph, number) for number in range(STEPS)])
        found = session.read(["fc3.weight"])
    assert times.losses == pytest.approx(losses, rel=1e-5)
    assert max_relative_error(found["fc3.weight"], last["fc3.weight"]) < 1e-4


def test_peak_memory_is_what_was_predicted(runs: StepRuns) -> None:
    for form in (StepForm("channels_last"), StepForm("channels_last", 1, 4)):
        graph = TrainingStep("squeezenet1_1", 1).graph(form)
        with (
            runs.library(graph) as library,
            open_step(graph, library, initial_values(graph, 1)) as session,
        ):
            times = session.run([drawn_feed(graph, 0)])
            assert times.peak_bytes == pytest.approx(session.predicted_bytes, rel=0.02)


def test_compiled_kernels_are_kept_and_used_again(
    runs: StepRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [task.kernel for task in tasks(formed(net(2), StepForm("channels_last")))]

    def parts() -> dict[Path, int]:
        with step_library(kernels, {}, runs.target, runs.space, tmp_path) as library:
            return {path: path.stat().st_mtime_ns for path in library.parts}

    first = parts()
    assert all(path.is_relative_to(tmp_path) for path in first)
    monkeypatch.setenv("PATH", "")  # without a linker nothing can be compiled
    assert parts() == first
    with (
        pytest.raises(ToolchainError, match="no linker"),
        step_library(kernels[:2], {}, runs.target, runs.space, tmp_path),
    ):
        pass


def test_a_damaged_schedule_is_named(runs: StepRuns) -> None:
    kernel = tasks(formed(net(2), StepForm("channels_last")))[0].kernel
    task = TaskResult(
        kernel.name, kernel.operator.name, kernel.role, kernel.spec, 1, 1.0, 0.5, 2.0, (1.9, 2.1), None, 1, 1, {},
        0.0, "direct", "0123",
    )  # fmt: skip
    damaged = Winner(task, [[["GetSBlock", [], ["nowhere", "main"], ["b0"]]], []])
    winners = {kernel.name: [damaged]}
    with (
        pytest.raises(RecordError, match="the recorded schedule of"),
        step_library([kernel], winners, runs.target, runs.space, None),
    ):
        pass


def test_a_kernel_that_no_run_knows_is_estimated_by_the_pace_of_its_kind(runs: StepRuns) -> None:
    """LeNet at batch 8 with the untuned times of batch 4 at a tenth of the usual guess."""
    known = TrainingStep("lenet", 4).graph(StepForm("channels_last"))
    larger = TrainingStep("lenet", 8).graph(StepForm("channels_last"))
    found = {}
    for task in tasks(known):
        kernel, guess_ms = task.kernel, 1e3 * runs.seconds(only(known, task.kernel))
        found[kernel.name] = Winner(
            TaskResult(
                kernel.name, kernel.operator.name, kernel.role, kernel.spec, 1, guess_ms / 10,
                guess_ms / 1000, 100.0, (99.0, 101.0), None, 1, 1, {}, 0.0, "direct", "default",
            ),
            None,
        )  # fmt: skip
    informed = replace(runs, winners=found)
    assert informed.seconds(known) == pytest.approx(runs.seconds(known) / 1000)
    new = [task.kernel for task in tasks(larger) if task.kernel.name not in found]
    assert new
    for kernel in new:
        assert informed.seconds(only(larger, kernel)) == pytest.approx(
            runs.seconds(only(larger, kernel)) / 10
        )


def only(graph: StepGraph, kernel: Kernel) -> StepGraph:
    """The nodes of one kernel; once, whatever the count."""
    node = next(node for node in graph.nodes if node.kernel == kernel)
    return replace(graph, nodes=(node,))


def test_the_fastest_form_within_a_limit_is_chosen(runs: StepRuns) -> None:
    wanted = TrainingStep("squeezenet1_1", 2)
    plain, _ = fitting_form(wanted, runs, ["channels_last"], 10**9)
    assert plain == StepForm("channels_last")
    lean, _ = fitting_form(wanted, runs, ["channels_last"], 30 * 10**6)
    assert lean != plain
    with pytest.raises(UsageError, match="the smallest needs"):
        fitting_form(wanted, runs, ["channels_last"], 10**6)


def test_the_smallest_form_is_named_over_both_layouts(runs: StepRuns) -> None:
    wanted = TrainingStep("lenet", 2)
    needs = [
        size
        for layout in ("channels_first", "channels_last")
        for _, _, size in form_sizes(wanted, runs, layout)
    ]
    with pytest.raises(UsageError, match=f"the smallest needs {min(needs) / 1e6:.4g} MB"):
        fitting_form(wanted, runs, ["channels_first", "channels_last"], min(needs) - 1)
    fitting_form(wanted, runs, ["channels_first", "channels_last"], min(needs))
