"""A training step, compiled and run: against the float64 evaluation of its graph, and in its memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from steps import early_update, net

from autotune.compiler.step import open_step
from autotune.compiler.step_library import step_library
from autotune.compiler.step_runs import StepRuns, fitting_form, step_runs
from autotune.errors import UsageError
from autotune.workloads import (
    StepForm,
    StepGraph,
    TrainingStep,
    build_model,
    evaluate,
    formed,
    initial_values,
    max_relative_error,
    tasks,
)

STEPS = 3


@pytest.fixture(scope="module")
def runs() -> StepRuns:
    return step_runs([])


def given(graph: StepGraph, number: int) -> dict[str, Any]:
    values = initial_values(graph, 100 + number)
    return {n: a for n, a in values.items() if graph.by_name[n].kind in ("input", "label")}


def expected(graph: StepGraph, values: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Losses and last values of some steps, in float64."""
    values, losses = dict(values), []
    for number in range(STEPS):
        values |= given(graph, number)
        found = evaluate(graph, values, [graph.loss, *graph.updates.values()])
        losses.append(float(found[graph.loss].reshape(-1)[0]))
        values |= {old: found[new] for old, new in graph.updates.items()}
    return losses, {old: graph.by_name[old].restored(values[old]) for old in graph.updates}


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
        times = session.run([given(graph, number) for number in range(STEPS)])
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
        times = session.run([given(graph, number) for number in range(STEPS)])
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
            times = session.run([given(graph, 0)])
            assert times.peak_bytes == pytest.approx(session.predicted_bytes, rel=0.02)


def test_a_profile_has_a_time_for_each_kernel(runs: StepRuns) -> None:
    graph = formed(build_model("lenet", 2), StepForm("channels_last"))
    with (
        runs.library(graph) as library,
        open_step(graph, library, initial_values(graph, 1)) as session,
    ):
        seconds = session.profile([given(graph, 0)] * 2)
    assert len(seconds) == len(graph.nodes)
    assert all(0 < s < 1 for s in seconds)


def test_compiled_kernels_are_kept_and_used_again(runs: StepRuns, tmp_path: Path) -> None:
    kernels = [task.kernel for task in tasks(formed(net(2), StepForm("channels_last")))]
    asked: list[int] = []

    def parts() -> Iterator[Path]:
        rest = (kernels, {}, runs.target, runs.space, tmp_path, lambda *_: asked.append(1))
        with step_library(*rest) as library:
            yield from library.parts

    first = {path: path.stat().st_mtime_ns for path in parts()}
    assert first == {path: path.stat().st_mtime_ns for path in parts()}


def test_the_fastest_form_within_a_limit_is_chosen(runs: StepRuns) -> None:
    wanted = TrainingStep("squeezenet1_1", 2)
    plain, _ = fitting_form(wanted, runs, "channels_last", 10**9)
    assert plain == StepForm("channels_last")
    lean, _ = fitting_form(wanted, runs, "channels_last", 30 * 10**6)
    assert lean != plain
    with pytest.raises(UsageError, match="the leanest needs"):
        fitting_form(wanted, runs, "channels_last", 10**6)
