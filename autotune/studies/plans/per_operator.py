"""A configuration for each phase or operator of a step, and its gain over the best single configuration.

Configurations of the search are profiled, and changes between them are measured. A plan is made from both. Its
prediction is then checked by measuring it beside the best single configuration.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.devices import Cluster
from autotune.errors import StableDeviceError
from autotune.measurement import (
    TIE,
    Setting,
    StepBench,
    StepProfile,
    StepRun,
    StepRunner,
    all_of,
    judge,
    settings_text,
    switch_seconds,
    threads_of,
)
from autotune.studies.evaluators import DeviceEvaluator, Measured, setting_of
from autotune.studies.plans.plan import CallCosts, Plan, best_plan, singles
from autotune.studies.run import Found
from autotune.studies.space import (
    CpuConfiguration,
    Figures,
    Limits,
    Objective,
    front,
    needs_energy,
    values,
)
from autotune.workloads import StepGraph

MOST = 6
"""Most configurations that a plan may use."""
_PHASES = {"forward": "forward", "data_grad": "backward", "weight_grad": "backward"}
_SWITCH_LIMIT_S = 120.0
OnMeasured = Callable[[str, dict[str, Any], Measured], None]


def candidates(found: Found) -> list[CpuConfiguration]:
    """Returns configurations that a plan may use: the run's best, then others along the time-energy front.

    Without joules there is no front, and the fastest few are used. The list is empty if the run has no best.
    """
    figures = found.figures
    if found.best is None:
        return []
    if any(f.energy_j is None for f in figures):
        ranked = sorted(range(len(figures)), key=lambda i: figures[i].time_s)
    else:
        on_front = sorted(
            front([values("pareto", f) for f in figures]), key=lambda i: figures[i].time_s
        )
        spread = np.linspace(0, len(on_front) - 1, min(MOST, len(on_front)))
        ranked = [on_front[round(at)] for at in spread]
    chosen = list(dict.fromkeys([found.best, *ranked]))[:MOST]
    return [found.trials[i].configuration for i in chosen]


def shared_out(parts: np.ndarray, whole: float) -> np.ndarray:
    """Scales parts so that they add up to the measured whole. Uses equal parts if a sum is not positive."""
    total = float(parts.sum())
    if total <= 0 or whole <= 0:
        return np.full(len(parts), whole / len(parts))
    return np.asarray(parts * (whole / total))


def phases(graph: StepGraph) -> list[int]:
    """Returns the numbers of the calls that begin the forward pass, the backward pass and the update, each time."""
    names = [_PHASES.get(node.kernel.role, node.kernel.role) for node in graph.nodes]
    return [at for at, name in enumerate(names) if at == 0 or name != names[at - 1]]


@dataclass(frozen=True)
class PlanRun:
    """Plans for one device and step.

    Attributes:
        bench: Measures the step.
        runner: The step on the device.
        graph: The step.
        objective: The figure to minimise.
        limits: Limits to keep.
        seed: Seed of the orders and the bootstrap.
        blocks: How often a plan and the best single configuration are measured.
        on_measured: Called with each measurement, its kind and a description of its subject.
        interrupted: Called between runs; returns whether to stop.
        used: Returns the schedule that each call uses under a configuration, by the call's number; None if each
            call has one.
    """

    bench: StepBench
    runner: StepRunner
    graph: StepGraph
    objective: Objective
    limits: Limits
    seed: int
    blocks: int
    on_measured: OnMeasured
    interrupted: Callable[[], bool] = lambda: False
    used: Callable[[CpuConfiguration], Mapping[int, int]] | None = None

    @property
    def _clusters(self) -> Sequence[Cluster]:
        return self.bench.info.clusters

    def run(self, configurations: Sequence[CpuConfiguration]) -> dict[str, Any] | None:
        """Profiles, plans and measures; returns None if interrupted.

        Args:
            configurations: Configurations that a plan may use. The first is the best single configuration. A plan's
                gain is relative to it, and it is measured beside the plan.

        Raises:
            StableDeviceError: The first, or a second one, cannot be profiled, or changes cannot be measured.
            DeviceError: The device is gone.
        """
        profiled = self._profiled(configurations)
        if self.interrupted():
            return None
        if len(profiled) < 2:
            raise StableDeviceError(
                f"{len(profiled)} configurations were profiled, and a plan needs two",
                hint="search for longer (--trials), or in a larger --space",
            )
        used = [configuration for configuration, _, _ in profiled]
        if used[0] != configurations[0]:
            raise StableDeviceError("the best single configuration could not be profiled")
        settings = [setting_of(self._clusters, configuration) for configuration in used]
        energies = [energy for _, _, energy in profiled]
        known = [energy for energy in energies if energy is not None]
        costs = CallCosts(
            np.stack([times for _, times, _ in profiled], axis=1),
            np.stack(known, axis=1) if len(known) == len(energies) else None,
            np.asarray(self._switches(settings)),
        )
        every, starts = singles(costs), phases(self.graph)
        plan = self._worth_it(best_plan(costs, self.objective, self.limits), every)
        coarse = self._worth_it(
            best_plan(costs.together(starts), self.objective, self.limits), every
        )
        names = [cluster.name for cluster in self._clusters]
        found: dict[str, Any] = {
            "configurations": [c.to_json(names) for c in used],
            "switch_s": costs.switch_s.tolist(),
            "single": _shown(every[0]) | {"number": 0},
            "phases": None if coarse is None else self._plan_json(coarse, every[0], starts),
            "operators": None
            if plan is None
            else self._plan_json(plan, every[0], list(range(len(self.graph.nodes)))),
            "measured": None,
        }
        if plan is not None and plan.changes and self.blocks:
            found["measured"] = self._compared(plan, used, settings)
        return found

    def _worth_it(self, plan: Plan | None, every: Sequence[Plan]) -> Plan | None:
        """Returns the plan, or the best single configuration if the plan gains too little over every single one."""
        if plan is None or not plan.changes:
            return plan and every[0]
        kept = [one.figures for one in every if self.limits.kept(one.figures)]
        least = min(_value(self, figures) for figures in [every[0].figures, *kept])
        return plan if least / _value(self, plan.figures) > 1 + TIE else every[0]

    def _plan_json(self, plan: Plan, alone: Plan, starts: Sequence[int]) -> dict[str, Any]:
        nodes = self.graph.nodes
        changes = [
            {
                "call": starts[at],
                "name": f"{nodes[starts[at]].place} {nodes[starts[at]].kernel.role}",
                "to": to,
            }
            for at, to in plan.changes
        ]
        gain = _value(self, alone.figures) / _value(self, plan.figures)
        return {**_shown(plan), "changes": changes, "foretold_gain": gain}

    def _profiled(
        self, configurations: Sequence[CpuConfiguration]
    ) -> list[tuple[CpuConfiguration, np.ndarray, np.ndarray | None]]:
        """Returns seconds and joules of each call under each measurable configuration.

        They are scaled to the step's sums.
        """
        found = []
        for configuration in configurations:
            if self.interrupted():
                break
            traced = self._single(configuration, traced=True)
            run, profile = traced.profile(setting_of(self._clusters, configuration))
            self._tell("profile", {"configuration": self._json(configuration)}, run)
            if profile is None or profile.calls.seconds.shape[1] != len(self.graph.nodes):
                continue
            if run.energy_j is None and needs_energy(self.objective, self.limits):
                continue
            times = shared_out(np.median(profile.calls.seconds, axis=0), run.time_s)
            joules = None
            if run.energy_j is not None:
                joules = shared_out(times * self._watts(profile), run.energy_j)
            found.append((configuration, times, joules))
        return found

    def _single(self, configuration: CpuConfiguration, *, traced: bool) -> StepBench:
        """Returns the step under one configuration, with its schedules for that configuration."""
        if self.used is None:
            return self.bench.measuring(self.runner.traced() if traced else self.runner.plain())
        threads = threads_of(setting_of(self._clusters, configuration))
        text = settings_text([threads], self._clusters, used=self.used(configuration))
        file = self.bench.bring(text, "schedules")
        runner = self.runner
        return self.bench.measuring(runner.chosen(file) if traced else runner.planned(file))

    def _watts(self, profile: StepProfile) -> np.ndarray:
        """Returns the power of each call, averaged over all calls of its operator and role.

        With single calls, some would seem frugal under some setting by chance, and a plan would follow these
        chances.
        """
        step = profile.step
        if step.energy_j is None:
            return np.ones(len(self.graph.nodes))
        watts = np.full(len(self.graph.nodes), step.energy_j / step.time_s)
        together: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, node in enumerate(self.graph.nodes):
            together[node.kernel.operator.name, node.kernel.role].append(number)
        for numbers in together.values():
            one = profile.of(numbers)
            if one.apart and one.energy_j is not None:
                watts[numbers] = one.energy_j / one.time_s
        return watts

    def _switches(self, settings: Sequence[Setting]) -> list[list[float]]:
        file = self.bench.bring(settings_text(settings, self._clusters), "switches")
        observed = self.bench.observe(self.runner.switches(file), all_of(settings), _SWITCH_LIMIT_S)
        self.on_measured("switches", {}, Measured("ok", raw={"records": [observed.text]}))
        try:
            return switch_seconds(observed.lines, len(settings))
        except ValueError as error:
            raise StableDeviceError(f"{self.bench.device.serial}: {error}") from error

    def _tell(self, kind: str, what: dict[str, Any], run: StepRun) -> None:
        self.on_measured(kind, what, DeviceEvaluator(self.bench, needs_energy=False).measured(run))

    def _compared(
        self,
        plan: Plan,
        configurations: Sequence[CpuConfiguration],
        settings: Sequence[Setting],
    ) -> dict[str, Any] | None:
        """Compares the plan with the best single configuration, the first one, in blocks of random order."""
        used = sorted(set(plan.settings))
        place = {number: at for at, number in enumerate(used)}
        through = [settings[number] for number in used]
        at = {0: place[plan.settings[0]]} | {call: place[to] for call, to in plan.changes}
        schedules: dict[int, int] = {}
        if self.used is not None:
            each = {number: self.used(configurations[number]) for number in used}
            schedules = {
                call: each[number][call]
                for call, number in enumerate(plan.settings)
                if call in each[number]
            }
        file = self.bench.bring(settings_text(through, self._clusters, at, schedules), "plan")
        planned = self.bench.measuring(self.runner.planned(file))
        plain = self._single(configurations[0], traced=False)
        turns = [("plan", planned, all_of(through)), ("single", plain, settings[0])]
        order, pairs = random.Random(self.seed), []
        for _ in range(self.blocks):
            if self.interrupted():
                break
            order.shuffle(turns)
            block: dict[str, Figures] = {}
            for kind, bench, setting in turns:
                run = bench.run(setting)
                self._tell("plan", {"of": kind}, run)
                if run.status == "ok" and (run.energy is not None or self.objective == "latency"):
                    block[kind] = Figures(run.time_s, run.energy_j)
            if len(block) == 2:
                pairs.append((block["single"], block["plan"]))
        if not pairs:
            return None
        found: dict[str, Any] = {"blocks": len(pairs)}
        single, plan_ = zip(*pairs, strict=True)
        verdict = judge(
            [_value(self, f) for f in single],
            [_value(self, f) for f in plan_],
            seed=self.seed,
            confidence=0.95,
        )
        found["ratio"] = verdict.ratio.estimate
        found["ci"] = verdict.ratio.ends
        found["verdict"] = {"second": "better", "first": "worse", "tie": "tie"}[verdict.winner]
        for name, figures in (("plan", plan_), ("single", single)):
            found[name] = {
                "time_s": float(np.median([f.time_s for f in figures])),
                "energy_j": _median([f.energy_j for f in figures]),
            }
        return found

    def _json(self, configuration: CpuConfiguration) -> dict[str, Any]:
        return configuration.to_json([cluster.name for cluster in self._clusters])


def _value(run: PlanRun, figures: Figures) -> float:
    """Returns the figure to minimise as one number."""
    single: Objective = "edp" if run.objective == "pareto" else run.objective
    return values(single, figures)[0]


def _shown(plan: Plan) -> dict[str, Any]:
    return {"time_s": plan.figures.time_s, "energy_j": plan.figures.energy_j}


def _median(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.median(known)) if len(known) == len(numbers) else None
