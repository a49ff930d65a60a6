"""A joint search: a study proposes the configuration, and each kernel's schedule is chosen for it from its pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from autotune.devices import Cluster
from autotune.reading import Unreadable, reading
from autotune.studies.evaluators import Measured
from autotune.studies.joint.placing import Placing
from autotune.studies.joint.prediction_errors import PredictionErrors
from autotune.studies.joint.timings import Timings
from autotune.studies.models import Floats, KernelModel, Rows, Seen, TaskPool
from autotune.studies.run import StudyTrial
from autotune.studies.space import CpuConfiguration, Figures, Objective, front

_FEW = 4
_SMALLEST = 1e-9
_ALIKE = 0.02
"""Schedules predicted within this share of the best are tried in turns. This costs little and teaches the model."""
_OFTEN, _SELDOM = 4, 0.1
"""The models are refitted after each of the first `_OFTEN` steps.

Later, `_SELDOM` is the growth of data that is needed.
"""


@dataclass(frozen=True)
class Choice:
    """How a step is computed under a configuration.

    Attributes:
        schedules: Index of each task's schedule in its pool.
        form: Index of the step's form: its micro-batches and recomputation.
        gpu: Numbers of the calls that a GPU makes, ascending.
    """

    schedules: tuple[int, ...]
    form: int = 0
    gpu: tuple[int, ...] = ()

    @property
    def rows(self) -> Rows:
        """The schedules as an array."""
        return np.asarray(self.schedules, np.int64)

    def to_json(self) -> dict[str, Any]:
        """Returns the choice as events store it."""
        event: dict[str, Any] = {"chosen": list(self.schedules), "form": self.form}
        return {**event, "gpu": list(self.gpu)} if self.gpu else event

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Choice | None:
        """Returns the choice in an event; None if the event has none."""
        if not event.get("chosen"):
            return None
        return cls(tuple(event["chosen"]), event.get("form", 0), tuple(event.get("gpu", ())))

    def check(self, pools: Sequence[tuple[int, int]], forms: int) -> None:
        """Checks that a search has this choice.

        Args:
            pools: First row and end of each task's pool.
            forms: Number of forms of the step.

        Raises:
            ValueError: It lacks a schedule or the form.
        """
        for number, (first, end) in zip(self.schedules, pools, strict=True):
            if not 0 <= number < end - first:
                raise Unreadable(f"schedule {number} is not in its pool")
        if not 0 <= self.form < forms:
            raise Unreadable(f"the step has no form {self.form}")


class StepSource(Protocol):
    """Measures whole steps with chosen schedules."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The device's clusters, from slow to fast."""

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""

    def measure(self, configuration: CpuConfiguration | None, choice: Choice) -> Measured:
        """Measures a step.

        `raw` of the result has `task_s`: the seconds of a call of each task on the CPU, None for a task without
        calls there. If a GPU makes calls, it also has `gpu_s`: the numbers of these calls and their seconds.

        Args:
            configuration: None for the system's default behaviour.
            choice: The schedules and the form to use.

        Raises:
            DeviceError: The device is gone, so nothing is known of the step.
        """


class JointEvaluator:
    """Chooses the form and the schedules of each step that it measures, and learns from the results.

    Args:
        steps: Measures steps.
        tasks: The pools.
        objective: The figure to minimise.
        seed: Seed of every random draw.
        counts: How often each form of the step runs each task, shape (forms, tasks). None for a single form that
            runs them as often as the pools say.
        placing: Knowledge about a GPU; None leaves every call on the CPU.

    Attributes:
        others: Returns measurements by other processes of the study. It is called before each choice.
    """

    def __init__(
        self,
        steps: StepSource,
        tasks: Sequence[TaskPool],
        objective: Objective,
        seed: int,
        counts: Floats | None = None,
        placing: Placing | None = None,
    ) -> None:
        self.steps, self._objective, self.placing = steps, objective, placing
        self.others: Callable[[], Sequence[StudyTrial]] = tuple
        own = np.asarray([[task.count for task in tasks]], np.float64)
        self.counts: Floats = own if counts is None else counts
        self.model = KernelModel(steps.clusters, tasks, self.counts.max(axis=0), seed)
        self._known: list[Seen] = self.model.table.timings(steps.clusters)
        self._fitted = 0
        self._tried = np.zeros(len(self.model.table), np.int64)
        self._forms_tried = np.zeros(len(self.counts), np.int64)
        self._timings = Timings()
        self._settled: dict[CpuConfiguration, Choice] | None = None
        self._again: dict[CpuConfiguration, Choice] = {}
        self.ran: dict[CpuConfiguration, Choice] = {}
        """The latest choice for each configuration."""
        self._points: list[tuple[float, float]] = []
        self.errors = PredictionErrors()
        self.untuned = _untuned(tasks)
        """The untuned default of each task, or its first schedule."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Evaluator.clusters`."""
        return self.steps.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""
        return self.steps.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`. The default is measured with untuned kernels."""
        choice = self.untuned if configuration is None else self.choose(configuration)
        event: dict[str, Any] = choice.to_json()
        if configuration is not None and self._fitted:
            event |= self._predictions(configuration, choice)
        measured = self.steps.measure(configuration, choice)
        raw = {**(measured.raw or {}), **event}
        self._take(configuration, choice, measured.figures, raw)
        memo = {**event, "task_s": raw.get("task_s"), "gpu_s": raw.get("gpu_s")}
        return replace(measured, raw=raw, memo=memo)

    def predicted(self, configuration: CpuConfiguration, choice: Choice) -> dict[str, Any]:
        """Predicts the sum of a step's calls: `time_s`, and `energy_j` or None."""
        return dict(self._predictions(configuration, choice)["foretold"])

    def _predictions(self, configuration: CpuConfiguration, choice: Choice) -> dict[str, Any]:
        """Predicts figures of a step and seconds of a call of each task, as events store them."""
        seconds, joules = self.predict(configuration)
        rows, times = self.model.table.rows(choice.rows), self._on_cpu(choice)
        time = float(times @ seconds[rows])
        energy = None if joules is None else float(times @ joules[rows])
        if self.placing is not None and choice.gpu:
            away, watts = self.placing.away(choice.form, choice.gpu), self.placing.watts
            time += away
            energy = None if energy is None or watts is None else energy + away * watts
        return {
            "foretold": {"time_s": time, "energy_j": energy},
            "foretold_s": [float(f"{one:.4g}") for one in seconds[rows]],
        }

    def timed(self, configuration: CpuConfiguration, choice: Choice) -> list[Sequence[float]]:
        """Returns measured seconds of a call of each task, one number a measurement."""
        return self._timings.of(configuration, self.model.table.rows(choice.rows))

    def _on_cpu(self, choice: Choice) -> Floats:
        """Returns how often the CPU runs each task."""
        times = np.asarray(self.counts[choice.form])
        if self.placing is not None:
            times = times - self.placing.counts(choice.form, choice.gpu, len(times))
        return times

    def choose(self, configuration: CpuConfiguration) -> Choice:
        """Chooses the form, schedules and GPU calls of a step under a configuration."""
        if self._settled is not None and configuration in self._settled:
            return self._settled[configuration]
        self.listen()
        self._fit()
        table = self.model.table
        seconds, joules = self.predict(configuration, hopeful=self._settled is None)
        second, joule = self._rates(seconds, joules)
        worth = second * seconds + (0.0 if joules is None else joule * joules)
        found = np.empty(len(table.tasks), np.int64)
        for task, (first, end) in enumerate(table.pools()):
            own = worth[first:end]
            found[task] = np.argmin(own)
            if self._settled is None:
                found[task] = _least_tried(own, self._tried[first:end])
        of_task = worth[table.rows(found)]
        forms = self.counts @ of_task
        placed: list[tuple[int, ...]] = [()] * len(forms)
        if self.placing is not None:
            watts = 0.0 if joules is None else float(joules.sum() / seconds.sum())
            each = [
                self.placing.chosen(number, of_task, second, joule, watts)
                for number in range(len(forms))
            ]
            placed, forms = [calls for calls, _ in each], np.asarray([cost for _, cost in each])
        form = int(np.argmin(forms))
        if self._settled is None:
            form = _least_tried(forms, self._forms_tried)
        choice = Choice(tuple(map(int, found)), form, placed[form])
        if self._settled is not None:
            self._settled[configuration] = choice
        return choice

    def predict(
        self, configuration: CpuConfiguration, *, hopeful: bool = False
    ) -> tuple[Floats, Floats | None]:
        """Predicts seconds and joules of a call of each schedule, shape (schedules,).

        Timings under this very configuration weigh more than the model's predictions. If there are some, `hopeful`
        lowers the predictions for the other schedules by the model's usual error, so that they are tried.
        """
        seconds, joules = (None if x is None else x[0] for x in self.model.predict([configuration]))
        assert seconds is not None
        factor = self._timings.correction(configuration, seconds, hopeful=hopeful)
        if factor is None:
            return seconds, joules
        return seconds * factor, None if joules is None else joules * factor

    def _rates(self, seconds: Floats, joules: Floats | None) -> tuple[float, float]:
        """Returns the costs of a second and a joule of a call.

        A call with lower total cost is better for the objective.

        A step is the sum of its calls, so the best schedule of each task makes the best step. The logarithm of the
        step's energy-delay product changes with each call's share of the seconds and of the joules. In a Pareto
        study, the slope of the front near the step's predicted place gives the joules that a second is worth.
        """
        if joules is None or self._objective in ("latency", "energy"):
            return (0.0, 1.0) if joules is not None and self._objective == "energy" else (1.0, 0.0)
        table = self.model.table
        best = [
            first + int(np.argmin(seconds[first:end] * joules[first:end]))
            for first, end in table.pools()
        ]
        step_s, step_j = ((self.counts @ x[best]).min() for x in (seconds, joules))
        time = 0.5 if self._objective == "edp" else exchange(self._points, step_s)
        return float(time / step_s), float((1 - time) / step_j)

    def listen(self) -> None:
        """Learns from new measurements by other processes.

        Raises:
            RecordError: The study holds a measurement of another form.
        """
        with reading("the study of several processes"):
            for trial in self.others():
                if trial.memo and trial.figures is not None and trial.configuration not in self.ran:
                    event = {"event": "trial", **trial.memo, "figures": vars(trial.figures)}
                    self.recall(trial.configuration, event)

    def settle(self) -> None:
        """Fixes one choice for each configuration from now on: the best one known, or the one already fixed."""
        self._settled = dict(self._again)

    def recall(self, configuration: CpuConfiguration | None, event: Mapping[str, Any]) -> None:
        """Learns from a measurement by an earlier part of the search, or by another process.

        Args:
            configuration: The configuration that was measured.
            event: `event`, `chosen`, `form`, `task_s` and `figures`, as events store them.

        Raises:
            Unreadable: It has a schedule or a form that this search does not have.
        """
        choice = Choice.of_event(event)
        if choice is not None and event.get("figures"):
            choice.check(self.model.table.pools(), len(self.counts))
            if event["event"] == "final" and configuration is not None:
                self._again[configuration] = choice
            self._take(configuration, choice, Figures(**event["figures"]), event)

    def _take(
        self,
        configuration: CpuConfiguration | None,
        choice: Choice,
        figures: Figures | None,
        event: Mapping[str, Any],
    ) -> None:
        task_s: Sequence[float | None] = event.get("task_s") or ()
        if figures is None:
            return
        if self.placing is not None and choice.gpu:
            self.placing.learn(
                choice.form, event.get("gpu_s") or (), figures.energy_j, self._cpu_joules(configuration, choice)
            )  # fmt: skip
        if configuration is None:
            return
        self.errors.take(event, figures, choice.form, task_s)
        self.ran[configuration] = choice
        self._forms_tried[choice.form] += 1
        if figures.energy_j is not None:
            self._points.append((figures.time_s, figures.energy_j))
        ran = [task for task, seconds in enumerate(task_s) if seconds is not None]
        if not ran:
            return
        rows = self.model.table.rows(choice.rows)[ran]
        seconds = np.asarray([task_s[task] for task in ran], np.float64)
        self._tried[rows] += 1
        self._timings.add(configuration, rows, seconds)
        watts = None
        # The power of a step that also uses a GPU says nothing about the CPU alone.
        if figures.energy_j is not None and not choice.gpu:
            watts = figures.energy_j / figures.time_s
        self._known.append(Seen(configuration, rows, seconds, watts))

    def _cpu_joules(self, configuration: CpuConfiguration | None, choice: Choice) -> float | None:
        """Predicts the joules of the calls that the CPU makes beside a GPU; None without data."""
        times = self._on_cpu(choice)
        if not times.any():
            return 0.0
        if configuration is None or not self._fitted:
            return None
        _, joules = self.predict(configuration)
        return None if joules is None else float(times @ joules[self.model.table.rows(choice.rows)])

    def _fit(self) -> None:
        if self._known and (
            self._fitted == 0
            or len(self._known) - self._fitted >= max(1, _SELDOM * (len(self._known) - _OFTEN))
        ):
            self.model.learn(self._known)
            self._fitted = len(self._known)


def _untuned(tasks: Sequence[TaskPool]) -> Choice:
    return Choice(
        tuple(
            next((i for i, s in enumerate(task.schedules) if s.digest == "default"), 0)
            for task in tasks
        )
    )


def _least_tried(worth: Floats, tried: Rows) -> int:
    """Returns the least-tried option among those that are about as good as the best."""
    alike = np.flatnonzero(worth <= worth.min() * (1 + _ALIKE))
    return int(np.argmin(worth) if len(alike) == 1 else alike[np.argmin(tried[alike])])


def exchange(points: Sequence[tuple[float, float]], seconds: float) -> float:
    """Returns the worth of a relative saving of time beside one of energy, from 0 to 1, at a point of a front.

    Args:
        points: Seconds and joules of the known points.
        seconds: The position on the front.
    """
    known = np.log(np.maximum(np.asarray(points, np.float64).reshape(-1, 2), _SMALLEST))
    known = known[front(known)] if len(known) else known
    known = known[np.argsort(known[:, 0])]
    if len(known) < _FEW:
        return 0.5
    at = int(np.clip(np.searchsorted(known[:, 0], np.log(seconds)), 1, len(known) - 1))
    left, right = known[max(0, at - 2)], known[min(len(known) - 1, at + 1)]
    slope = max(0.0, float((left[1] - right[1]) / max(right[0] - left[0], _SMALLEST)))
    return slope / (1 + slope)
