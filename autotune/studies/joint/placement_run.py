"""Measures a step on the CPU, on a GPU, and on both: before a search to learn about the GPU, and after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autotune.errors import StableDeviceError
from autotune.measurement import median
from autotune.studies.evaluators import WAYS, Measured
from autotune.studies.joint.joint import Choice, JointEvaluator
from autotune.studies.joint.placing import Crossed, Placing
from autotune.studies.run import (
    Final,
    Progress,
    Record,
    figures_ratio,
    final_of,
    in_both,
    interleaved_blocks,
)
from autotune.studies.space import CpuConfiguration, Figures, Limits, Objective, best

PROBE, PLACED = "gpu_probe", "placed"
"""Events: the whole step on the GPU before a search, and the comparison of placements after it."""


class PlacementRun:
    """Measures placements for a search.

    Args:
        evaluator: The search's evaluator, which knows about a GPU.
        placing: Its knowledge about the GPU.
        record: See `CpuConfigRun`.
        progress: See `CpuConfigRun`.
        interrupted: See `CpuConfigRun`.
        blocks: How often each placement is measured.
        objective: The figure to minimise.
        seed: Seed of the order of blocks.
        events: Events of earlier parts of this run.
    """

    def __init__(
        self,
        evaluator: JointEvaluator,
        placing: Placing,
        record: Record,
        progress: Progress,
        *,
        interrupted: Callable[[], bool],
        blocks: int,
        objective: Objective,
        seed: int,
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        self._evaluator, self._placing = evaluator, placing
        self._record, self._progress = record, progress
        self._interrupted, self._blocks, self._seed = interrupted, blocks, seed
        self._events, self._objective = events, objective
        self._names = [cluster.name for cluster in evaluator.clusters]
        self._alone: tuple[CpuConfiguration, Choice]

    def probe(self) -> None:
        """Measures the step with every call that the GPU can make, so that the search knows the GPU's costs.

        Raises:
            StableDeviceError: The step does not run with these calls on the GPU.
        """
        for event in self._events:
            if event["event"] == PROBE:
                self._require(Measured.of_event(event))
                return
        choice = replace(self._evaluator.untuned, gpu=self._placing.forms[0].all)
        measured = self._evaluator.steps.measure(None, choice)
        self._record(PROBE, {"configuration": None, **choice.to_json()}, measured)
        self._require(measured)
        assert measured.figures is not None
        probe = {"event": PROBE, **(measured.raw or {}), **choice.to_json()}
        self._evaluator.recall(None, {**probe, "figures": vars(measured.figures)})

    @staticmethod
    def _require(measured: Measured) -> None:
        if measured.figures is None:
            raise StableDeviceError(f"the step does not run on the GPU: {measured.message}")

    def compared(self, configuration: CpuConfiguration, limits: Limits) -> dict[str, Any] | None:
        """Compares the best configuration's step on the GPU with the CPU alone, in turns.

        The step on both is compared too, if that is best. The CPU alone uses the configuration that is predicted to
        suit it best, which may be another one. Afterwards the search keeps the best placement. The GPU takes part
        only if this is significantly better than the CPU alone.

        Args:
            configuration: The best of the search.
            limits: Limits for the best configuration of the CPU alone.

        Returns:
            The content for the search's result (docs/joint.md); None if interrupted.
        """
        chosen = self._evaluator.choose(configuration)
        self._alone = self._best_alone(configuration, chosen, limits)
        form = self._placing.forms[chosen.form]
        sides = {"cpu": self._alone, "gpu": (configuration, replace(chosen, gpu=form.all))}
        if chosen.gpu and chosen.gpu != form.all:
            sides["mixed"] = (configuration, chosen)
        places = self._measured(configuration, sides)
        if places is None:
            return None
        place = _best(places, self._objective)
        if place != "mixed":
            self._placing.only = "gpu" if place == "gpu" else "cpu"
        return {
            "gpu": self._placing.device.name,
            "stand_in": not self._placing.device.gpu,
            "memory": form.memory,
            "calls": form.calls,
            "able": len(form.kernels),
            "best": place,
            "sure": place != "cpu" or _surely_best(places, self._objective),
            "configuration": configuration.to_json(self._names),
            "cpu_configuration": self._alone[0].to_json(self._names),
            "places": places,
            "again": None,
            "crossings": [_crossed(one) for one in form.crossed],
        }

    def compared_again(self, configuration: CpuConfiguration) -> dict[str, Any] | None:
        """Compares another best configuration, in its present placement, with the CPU alone, in turns.

        Returns:
            `configuration`, `places` and `sure` as above; None if interrupted.
        """
        chosen = self._evaluator.choose(configuration)
        every = chosen.gpu == self._placing.forms[chosen.form].all
        sides = {"cpu": self._alone, "gpu" if every else "mixed": (configuration, chosen)}
        places = self._measured(configuration, sides)
        if places is None:
            return None
        return {
            "configuration": configuration.to_json(self._names),
            "places": places,
            "sure": _best(places, self._objective) != "cpu",
        }

    def _best_alone(
        self, configuration: CpuConfiguration, chosen: Choice, limits: Limits
    ) -> tuple[CpuConfiguration, Choice]:
        """Returns the measured configuration that is predicted to suit the CPU alone best, and the choice for it.

        Returns the given configuration if there are no joules to predict from, or if none is predicted to keep the
        limits.
        """
        ran = {configuration: chosen, **self._evaluator.ran}
        every = list(ran)
        figures = [
            Figures(**self._evaluator.predicted(one, replace(ran[one], gpu=()))) for one in every
        ]
        known = self._objective == "latency" or all(one.energy_j is not None for one in figures)
        found = every[(best(self._objective, limits, figures) if known else None) or 0]
        before, self._placing.only = self._placing.only, "cpu"
        choice = self._evaluator.choose(found)
        self._placing.only = before
        return found, choice

    def _measured(
        self,
        configuration: CpuConfiguration,
        sides: Mapping[str, tuple[CpuConfiguration, Choice]],
    ) -> dict[str, Any] | None:
        """Measures each place in interleaved blocks and returns the results; None if interrupted."""
        names = list(sides)
        beside = configuration.to_json(self._names)
        about = {
            name: {
                "configuration": own.to_json(self._names), "place": name, "gpu": list(choice.gpu),
                "beside": beside,
            }
            for name, (own, choice) in sides.items()
        }  # fmt: skip
        known = [
            event
            for event in self._events
            if event["event"] == PLACED and event.get("beside", event["configuration"]) == beside
        ]
        if any(
            {"beside": beside, **{key: event[key] for key in ("configuration", "place", "gpu")}}
            != about.get(event["place"])
            for event in known
        ):
            known = []  # These measured other choices, before further trials.
        self._progress.phase("CPU and GPU", self._blocks * len(sides))

        def on_measured(side: int, measured: Measured, done: int) -> None:
            self._record(PLACED, about[names[side]], measured)
            self._progress.step(done, names[side])

        found = interleaved_blocks(
            [partial(self._evaluator.steps.measure, *sides[name]) for name in names],
            blocks=self._blocks,
            seed=self._seed,
            on_measured=on_measured,
            interrupted=self._interrupted,
            earlier=[(names.index(event["place"]), Measured.of_event(event)) for event in known],
        )
        if self._interrupted():
            return None
        choices = {name: choice for name, (_, choice) in sides.items()}
        return self._places(choices, dict(zip(names, found, strict=True)))

    def _places(
        self, choices: Mapping[str, Choice], found: Mapping[str, Mapping[int, Measured]]
    ) -> dict[str, Any]:
        finals = {
            name: final_of(None, runs, self._seed) if runs else None for name, runs in found.items()
        }
        cpu = finals["cpu"]
        places: dict[str, Any] = {}
        for name, final in finals.items():
            if final is None:
                places[name] = None
                continue
            places[name] = {**_figures(final), "gpu_calls": len(choices[name].gpu)}
            if choices[name].gpu:
                places[name]["data_movement"] = _shares(found[name])
            if name != "cpu":
                pairs = in_both(cpu.blocks if cpu else {}, final.blocks)
                for figure in ("time_s", "energy_j"):
                    places[name][f"cpu_over_{figure}"] = figures_ratio(
                        pairs, figure, pairs[0] if pairs else (), self._seed
                    )
        return places


def _best(places: Mapping[str, Any], objective: Objective) -> str:
    """Returns the best place for a step: the CPU, unless another place is significantly better."""
    found = "cpu"
    least = np.inf
    for name, ratios_of_name in _ratios(places, objective).items():
        verdicts = {ratio["verdict"] for ratio in ratios_of_name}
        value = np.prod([1 / ratio["ratio"] for ratio in ratios_of_name])
        if "better" in verdicts and "worse" not in verdicts and value < least:
            found, least = name, value
    return found


def _surely_best(places: Mapping[str, Any], objective: Objective) -> bool:
    """Returns whether a step is significantly worse in every place other than the CPU."""
    ratios = _ratios(places, objective)
    return len(ratios) == len(places) - 1 and all(
        "worse" in verdicts and "better" not in verdicts
        for verdicts in ({ratio["verdict"] for ratio in found} for found in ratios.values())
    )


def _ratios(places: Mapping[str, Any], objective: Objective) -> dict[str, list[dict[str, Any]]]:
    """Returns the ratios of the CPU alone to each other measured place, for the figures of the objective."""
    names = {"latency": ("time_s",), "energy": ("energy_j",)}.get(objective, ("time_s", "energy_j"))
    every = {
        name: [place[f"cpu_over_{figure}"] for figure in names]
        for name, place in places.items()
        if name != "cpu" and place is not None
    }
    return {name: [one for one in found if one is not None] for name, found in every.items()}


def _figures(final: Final) -> dict[str, Any]:
    figures = final.figures
    return {
        "time_s": figures.time_s,
        "energy_j": figures.energy_j,
        "ci": {
            "time_s": final.time_s.ends,
            "energy_j": final.energy_j.ends if final.energy_j else None,
        },
    }


def _shares(runs: Mapping[int, Measured]) -> dict[str, float] | None:
    """Returns the shares of the step in which tensors crossed, by kind of crossing.

    Returns None if the program reported none.
    """
    measured = [(run.raw, run.figures.time_s) for run in runs.values() if run.raw and run.figures]
    measured = [(raw, time_s) for raw, time_s in measured if raw.keys() >= WAYS.keys()]
    if not measured:
        return None
    return {
        word: median([raw[way] / time_s for raw, time_s in measured]) for way, word in WAYS.items()
    }


def _crossed(one: Crossed) -> dict[str, Any]:
    return {
        "bytes": one.bytes,
        "reordered": one.order is not None,
        "tensors": one.tensors,
        **{memory: vars(costs) for memory, costs in one.costs.items()},
    }
