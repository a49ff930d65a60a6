"""Runs of a study that are not trials: repeats of one of its first configurations, and challengers beside the best.

The repeats show whether the device drifts. The challenges show whether an apparent improvement is real. Neither
corrects any measurement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import stdtrit

from autotune.measurement import TIE, Interval, Winner, median
from autotune.studies.evaluators import Evaluator, Measured
from autotune.studies.run.study import StudyRequest, StudyTrial
from autotune.studies.space import CpuConfiguration, Figures, values

REFERENCE_EVERY = 8
"""Trials between two runs of the reference."""
_CANDIDATES = 3
"""Number of first trials from which the fastest becomes the reference.

A fast one is chosen because it runs often.
"""
CHALLENGE_SHARE = 0.3
"""Share of the number of trials that may be spent on runs of challenges."""
BLOCKS = 5
"""Most blocks of a challenge."""
_PRIOR_SPREAD = 0.02
_PRIOR_RUNS = 3
"""Prior spread of a run, and the number of pairs of runs that this prior is worth."""
DRIFT_CONFIDENCE = 0.98
"""Confidence of each drift interval.

Over the five of 40 trials, one in twenty studies of a steady device is marked.
"""

Metric = Literal["time_s", "energy_j"]
_METRICS: tuple[Metric, ...] = ("time_s", "energy_j")
_WORDS = {"time_s": "time", "energy_j": "energy"}
Record = Callable[[str, dict[str, Any], Measured | None], None]


class Spread:
    """The relative spread of single runs, from pairs of successive runs of one configuration."""

    def __init__(self) -> None:
        self._squares, self._pairs = 0.0, 0

    def add(self, first: float, second: float) -> None:
        """Adds a pair."""
        self._squares += math.log(second / first) ** 2 / 2
        self._pairs += 1

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of a run's figure."""
        squares = _PRIOR_RUNS * _PRIOR_SPREAD**2 + self._squares
        return math.sqrt(squares / (_PRIOR_RUNS + self._pairs))

    def interval(self, ratio: float, first: int, then: int) -> Interval:
        """Returns a ratio of the means of `then` and `first` runs, with its 98 % interval (Student's)."""
        tail = (1 + DRIFT_CONFIDENCE) / 2
        half = float(stdtrit(_PRIOR_RUNS + self._pairs, tail)) * self.deviation
        half *= math.sqrt(1 / first + 1 / then)
        return Interval(ratio, ratio * math.exp(-half), ratio * math.exp(half))


@dataclass(frozen=True)
class Reference:
    """The change of the reference since its first measurements.

    Attributes:
        after: Trials of this process so far.
        ratios: Seconds and joules, relative to the first two runs.
        drifted: Figures whose change exceeds the noise.
    """

    after: int
    ratios: dict[Metric, Interval]
    drifted: tuple[Metric, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns a plain object."""
        ratios: dict[str, Any] = {
            name: {"ratio": r.estimate, "ci": [r.low, r.high], "drifted": name in self.drifted}
            for name, r in self.ratios.items()
        }
        return {"after": self.after, **ratios}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reference:
        """Returns the reference from the output of `to_json`."""
        ratios = {name: value[name] for name in _METRICS if name in value}
        return cls(
            value["after"],
            {name: Interval(r["ratio"], *r["ci"]) for name, r in ratios.items()},
            tuple(name for name, r in ratios.items() if r["drifted"]),
        )


class Repeats:
    """Repeats of one process, on its own device.

    Args:
        evaluator: Measures configurations.
        request: The study's request.
        record: Called with each run (`reference`, `challenge`) and each result derived from it (`drift`,
            `verdict`).
        notice: Receives messages that people should see at once.
        every: Trials between runs of the reference; 0 for none.
        challenges: Whether there are challenges. A Pareto study has none, since it has no single best.
        interrupted: Called before each run; returns whether to stop.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        request: StudyRequest,
        record: Record,
        notice: Callable[[str], None],
        *,
        every: int = REFERENCE_EVERY,
        challenges: bool = True,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._evaluator, self._request, self._record = evaluator, request, record
        self._notice, self._interrupted, self._every = notice, interrupted, every
        self._names = [cluster.name for cluster in evaluator.clusters]
        self._runs_left = 0
        if challenges and request.objective != "pareto":
            self._runs_left = int(CHALLENGE_SHARE * request.trials)
        self._spread = {name: Spread() for name in (*_METRICS, "edp")}
        self._order = random.Random(request.seed)
        self._trials = self._since = 0
        self._candidates: list[tuple[CpuConfiguration, Figures]] = []
        self._reference: CpuConfiguration | None = None
        self._first: list[Figures] = []
        self.incumbent: CpuConfiguration | None = None
        self._best = math.inf
        self.references: list[Reference] = []
        self.verdicts: list[dict[str, Any]] = []

    def recall(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Restores state from this run's events of earlier parts."""
        for event in events:
            kind, figures = event["event"], event.get("figures")
            if kind == "trial":
                self._count(self._read(event["configuration"]), figures and Figures(**figures))
            elif kind == "challenge":
                self._runs_left -= 1
            elif kind == "reference":
                self._since = 0
                if event["first"] and figures:
                    self._begin(Figures(**figures))
                elif "after" in event:
                    self.references.append(Reference.from_json(event))
            elif kind == "verdict":
                verdict = {k: v for k, v in event.items() if k not in ("event", "time")}
                self.verdicts.append(verdict)
                side = "challenger" if verdict["verdict"] == "better" else "incumbent"
                self.incumbent, self._best = self._read(verdict[side]), verdict["value"]

    def after(self, trial: StudyTrial) -> None:
        """Does the runs that are due after a trial.

        Raises:
            DeviceError: The device is gone.
        """
        before = self.incumbent, self._best
        better = self._count(trial.configuration, trial.figures)
        if better and before[0] is not None and self._runs_left >= 2:
            self._challenge(before[0], before[1], trial.configuration, self._best)
        if self._reference is None or not 0 < self._every < self._request.trials:
            return
        if not self._interrupted() and (len(self._first) == 1 or self._since >= self._every):
            self._refer(self._reference)

    def marks(self) -> list[str]:
        """Returns reasons to doubt the study's figures: the largest drift of each figure."""
        found = []
        for name in _METRICS:
            drifted = [r for r in self.references if name in r.drifted]
            if drifted:
                worst = max(drifted, key=lambda r: abs(math.log(r.ratios[name].estimate)))
                found.append(_drift_text(worst, name) + "; no figure is corrected for it")
        return found

    def _count(self, configuration: CpuConfiguration, figures: Figures | None) -> bool:
        """Counts a trial, and returns whether it looks better than the incumbent."""
        self._trials += 1
        self._since += 1
        if figures is None:
            return False
        if self._reference is None:
            self._candidates.append((configuration, figures))
            if len(self._candidates) == _CANDIDATES:
                self._reference, first = min(self._candidates, key=lambda c: c[1].time_s)
                self._first, self._since = [first], 0
        if self._request.objective == "pareto" or not self._request.limits.kept(figures):
            return False
        (value,) = values(self._request.objective, figures)
        if value >= self._best:
            return False
        self.incumbent, self._best = configuration, value
        return True

    def _read(self, configuration: dict[str, Any]) -> CpuConfiguration:
        return CpuConfiguration.from_json(configuration, self._names)

    # The reference.

    def _refer(self, configuration: CpuConfiguration) -> None:
        """Measures the reference, and again at once if it seems to have changed."""
        self._since = 0
        first = len(self._first) == 1
        runs: list[Figures] = []
        while len(runs) < 2 and not self._interrupted():
            measured = self._evaluator.measure(configuration)
            what = {"configuration": configuration.to_json(self._names), "first": first}
            if measured.figures is None or first:
                self._record("reference", what, measured)
                if measured.figures is not None:
                    self._begin(measured.figures)
                return
            runs.append(measured.figures)
            if len(runs) == 2:
                self._pair(*runs)
            found = self._compared(runs)
            decided = len(runs) == 2 or not found.drifted
            self._record("reference", {**what, **(found.to_json() if decided else {})}, measured)
            if decided:
                self._report_drift(found)
                return

    def _begin(self, again: Figures) -> None:
        """Records the second of the runs that later runs are compared with."""
        self._pair(self._first[0], again)
        self._first.append(again)

    def _compared(self, runs: Sequence[Figures]) -> Reference:
        ratios: dict[Metric, Interval] = {}
        for name in _METRICS:
            sides = [[getattr(f, name) for f in side] for side in (self._first, runs)]
            if any(value is None or value <= 0 for side in sides for value in side):
                continue
            before, now = (math.exp(sum(map(math.log, side)) / len(side)) for side in sides)
            ratios[name] = self._spread[name].interval(now / before, len(self._first), len(runs))
        drifted = tuple(
            name for name, r in ratios.items()
            if not r.low <= 1 <= r.high and abs(r.estimate - 1) > TIE
        )  # fmt: skip
        return Reference(self._trials, ratios, drifted)

    def _report_drift(self, found: Reference) -> None:
        self.references.append(found)
        for name in found.drifted:
            text = _drift_text(found, name)
            self._record("drift", {"metric": name, "text": text, **found.to_json()}, None)
            self._notice(text)

    # Challenges.

    def _challenge(
        self,
        incumbent: CpuConfiguration,
        old: float,
        challenger: CpuConfiguration,
        new: float,
    ) -> None:
        """Measures both in interleaved blocks of random order. A challenger that cannot be told apart does not win.

        The interval of the ratio comes from the known spread of runs. The incumbent stays unless the interval lies
        above 1 after some block. A challenger that is not better on average is given up at once.
        """
        figure = {"latency": "time_s", "energy": "energy_j"}.get(self._request.objective, "edp")
        spread = self._spread[figure]
        sides: tuple[list[Figures], list[Figures]] = ([], [])
        winner: Winner = "tie"
        ratio: Interval | None = None
        for block in range(BLOCKS):
            if self._runs_left < 2 or self._interrupted():
                winner = "tie"
                break
            if not self._block(block, (incumbent, challenger), sides):
                winner = "tie"  # One of them did not run this time.
                break
            mine, theirs = ([values(self._request.objective, f)[0] for f in s] for s in sides)
            if min(*mine, *theirs) <= 0:
                winner = "tie"  # Energies lost in the baseline have no ratio.
                break
            logs = [math.log(a / b) for a, b in zip(mine, theirs, strict=True)]
            estimate = math.exp(sum(logs) / len(logs))
            ratio = spread.interval(estimate, len(logs), len(logs))
            winner = "second" if ratio.low > 1 else "first" if ratio.high < 1 else "tie"
            if winner != "tie" or estimate <= 1:
                break
        won = winner == "second"
        self.incumbent = challenger if won else incumbent
        first, again = (new, sides[1]) if won else (old, sides[0])
        # One lucky run must not keep others from being tried.
        self._best = median([first, *(values(self._request.objective, f)[0] for f in again)])
        verdict = {
            "incumbent": incumbent.to_json(self._names),
            "challenger": challenger.to_json(self._names),
            "blocks": len(sides[1]),
            "value": self._best,
            "ratio": ratio.estimate if ratio else None,
            "ci": [ratio.low, ratio.high] if ratio else None,
            "verdict": {"second": "better", "first": "worse", "tie": "tie"}[winner],
        }  # fmt: skip
        self.verdicts.append(verdict)
        self._record("verdict", verdict, None)

    def _block(
        self,
        block: int,
        pair: tuple[CpuConfiguration, CpuConfiguration],
        sides: tuple[list[Figures], list[Figures]],
    ) -> bool:
        """Measures both once, in random order, and returns whether both gave figures."""
        found: dict[int, Figures] = {}
        for turn in self._order.sample((0, 1), 2):
            measured = self._evaluator.measure(pair[turn])
            self._runs_left -= 1
            what = {"configuration": pair[turn].to_json(self._names), "block": block}
            self._record("challenge", what, measured)
            if measured.figures is None:
                return False
            found[turn] = measured.figures
        for turn, side in enumerate(sides):
            if side:
                self._pair(side[-1], found[turn])
            side.append(found[turn])
        return True

    def _pair(self, first: Figures, second: Figures) -> None:
        for name, spread in self._spread.items():
            a, b = getattr(first, name), getattr(second, name)
            if a is not None and b is not None and a > 0 and b > 0:
                spread.add(a, b)


def _drift_text(found: Reference, name: Metric) -> str:
    ratio = found.ratios[name]
    return (
        f"the device drifts: after {found.after} trials the {_WORDS[name]} of the reference is "
        f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of what it was"
    )
