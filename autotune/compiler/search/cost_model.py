"""The XGBoost cost model that ranks schedules before they are measured.

Features are MetaSchedule's per-store features (Zheng et al., "Ansor", OSDI 2020), reduced to one vector per
schedule: the sum and the maximum over its stores. The label is the speed relative to the fastest schedule of the
same kernel so far. So one model learns from all kernels of a run.

Features of tiles are few and cheap, so a committee learns from them. Each member learns from its own resample of
the measurements. A tile's score is the members' mean plus a multiple of their standard deviation, because members
disagree where there is something to find (upper confidence bounds of bagged trees, as in Hutter et al., "SMAC",
LION 2011). The candidates of one round are chosen with different multiples (Hutter et al., "Parallel algorithm
configuration", LION 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.programs import program_hash

_ROUNDS = 60
_LEAST_WEIGHT = 0.2
"""Weight of any measurement, added to its relative speed, so that slow ones count too."""
_WORTH = 256
"""Total weight of all lessons, in measurements of the run's own, if there are more lessons than that."""
_EXPLORATION = 1.5
"""Standard deviations of a committee's scores that are added to their mean."""
_FRESH_SHARE = 0.15
"""Share of new measurements, relative to those of the last training, after which it trains again."""
_FRESH_SHARE_OF_COMMITTEE = 0.03
"""The same for a committee, which has few features: it trains nearly every round."""
# One thread: the data is small, and XGBoost's idle threads would spin while the build workers need the cores.
_PARAMETERS = {
    "max_depth": 6,
    "eta": 0.15,
    "min_child_weight": 1.0,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "verbosity": 0,
    "nthread": 1,
}


@dataclass(frozen=True)
class Lesson:
    """Measurements of one kernel from before the run.

    Attributes:
        features: A feature vector for each schedule.
        seconds: Time of each schedule.
    """

    features: Sequence[NDArray[np.float32]]
    seconds: Sequence[float]


class ScheduleRanker:
    """Learns which schedules are fast, and predicts this for new ones.

    Args:
        seed: Seed of the model, and of the random scores before its first training.
        warmup: Measurements needed before its predictions are used.
        members: Number of boosters. Several learn from a resample each; a single one learns from all measurements.
    """

    def __init__(self, *, seed: int, warmup: int, members: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._warmup = warmup
        self._resampling = np.random.default_rng([seed, members])
        self._seed = seed
        self._members = members
        self._fresh_share = _FRESH_SHARE if members == 1 else _FRESH_SHARE_OF_COMMITTEE
        self._features: dict[str, list[NDArray[np.float32]]] = {}
        self._seconds: dict[str, list[float]] = {}
        self._lessons: tuple[NDArray[np.float32], NDArray[np.float64]] | None = None
        self._trained_on = 0
        self._version = 0
        self._boosters: list[Any] = []

    @property
    def version(self) -> int:
        """A number that changes with each training; 0 while its scores are random."""
        return self._version

    @property
    def measurements(self) -> int:
        """Number of measurements that it has seen."""
        return sum(len(times) for times in self._seconds.values())

    def learn(
        self, kernel: str, features: Sequence[NDArray[np.float32]], seconds: Sequence[float]
    ) -> None:
        """Adds measurements of one kernel, with infinity for a failure. Trains again when due."""
        self._features.setdefault(kernel, []).extend(features)
        self._seconds.setdefault(kernel, []).extend(seconds)
        total = self.measurements
        enough = total >= self._warmup or self._lessons is not None
        if enough and total >= self._trained_on * (1 + self._fresh_share):
            self._train()
            self._trained_on = total if self._boosters else 0

    def teach(self, lessons: Sequence[Lesson]) -> None:
        """Trains with measurements of other kernels from before the run. It then needs no warm-up.

        They replace earlier lessons.
        """
        timed = [one for one in lessons if one.seconds]
        if not timed:
            return
        rows = np.concatenate([np.stack(one.features) for one in timed])
        labels = np.concatenate([np.min(one.seconds) / np.asarray(one.seconds) for one in timed])
        self._lessons = rows, labels
        self._train()

    def score(self, features: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
        """Returns predicted relative speeds; higher is faster. They are random before the first training."""
        if not self._boosters:
            return self.random_scores(len(features))
        (bounds,) = self.upper_bounds(features, (_EXPLORATION,))
        return np.asarray(bounds)

    def upper_bounds(
        self, features: Sequence[NDArray[np.float32]], weights: Sequence[float]
    ) -> NDArray[np.float64]:
        """Returns predicted relative speeds, with a multiple of the members' standard deviation added.

        It must have been trained.

        Args:
            features: A feature vector for each schedule.
            weights: The multiples.

        Returns:
            Speeds of shape [weights, features].
        """
        rows = np.stack(features)
        said = np.stack([one.inplace_predict(rows) for one in self._boosters]).astype(np.float64)
        bounds: NDArray[np.float64] = said.mean(axis=0) + np.outer(weights, said.std(axis=0))
        return np.maximum(bounds, 1e-6)

    def random_scores(self, count: int) -> NDArray[np.float64]:
        """Returns the random scores of an untrained model."""
        return self._random.uniform(size=count)

    def _train(self) -> None:
        import xgboost

        rows: list[NDArray[np.float32]] = []
        labels: list[NDArray[np.float64]] = []
        weights: list[NDArray[np.float64]] = []
        if self._lessons is not None:
            known, speeds = self._lessons
            rows.append(known)
            labels.append(speeds)
            weights.append((_LEAST_WEIGHT + speeds) * min(1.0, _WORTH / len(speeds)))
        for kernel, seconds in self._seconds.items():
            times = np.asarray(seconds)
            if not np.isfinite(times).any():
                continue
            rows.append(np.stack(self._features[kernel]))
            labels.append(np.min(times) / times)
            weights.append(_LEAST_WEIGHT + labels[-1])
        if not rows:
            return
        inputs, target, weight = (
            np.concatenate(rows), np.concatenate(labels), np.concatenate(weights),
        )  # fmt: skip
        self._boosters = []
        for member in range(self._members):
            taken = self._taken(len(target))
            data = xgboost.DMatrix(inputs[taken], label=target[taken], weight=weight[taken])
            parameters = {**_PARAMETERS, "seed": self._seed + member}
            self._boosters.append(xgboost.train(parameters, data, num_boost_round=_ROUNDS))
        self._version += 1

    def _taken(self, count: int) -> NDArray[np.int64]:
        """Returns the measurements to train a booster with: all for a single one, a resample for a member."""
        if self._members == 1:
            return np.arange(count)
        return self._resampling.integers(count, size=count)


class FeatureExtractor:
    """Computes one feature vector per schedule: sum and maximum of its per-store features.

    Extraction lowers the schedule, which takes milliseconds, and the search asks for the same schedules many times.
    So results are cached by the program's structural hash.
    """

    def __init__(self) -> None:
        self._known: dict[int, NDArray[np.float32]] = {}

    def __call__(self, context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
        """Returns the feature vectors of `MeasureCandidate`s of one tuning context, in order."""
        from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

        hashes = [program_hash(candidate.sch.mod) for candidate in candidates]
        fresh = {
            known: candidate
            for known, candidate in zip(hashes, candidates, strict=True)
            if known not in self._known
        }
        if fresh:
            extracted = PerStoreFeature().extract_from(context, list(fresh.values()))
            for known, rows in zip(fresh, extracted, strict=True):
                self._known[known] = _reduced(np.asarray(rows.numpy(), dtype=np.float32))
        return [self._known[known] for known in hashes]


def _reduced(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    width = rows.shape[1]
    if rows.shape[0] == 0:
        return np.zeros(2 * width, dtype=np.float32)
    return np.concatenate([rows.sum(axis=0), rows.max(axis=0)]).astype(np.float32)


def metaschedule_model(ranker: ScheduleRanker, features: FeatureExtractor) -> Any:
    """Wraps a ranker as the `CostModel` that MetaSchedule's evolutionary search uses."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    @derived_object
    class Model(PyCostModel):  # type: ignore[misc]  # TVM ships no annotations
        def load(self, path: str) -> None:
            raise NotImplementedError("the model is trained again from a run's records")

        def save(self, path: str) -> None:
            raise NotImplementedError("the model is trained again from a run's records")

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            """Does nothing. Learning happens in `FormulationSearch.observe`, which also knows about failures."""

        def predict(self, context: Any, candidates: Any) -> NDArray[np.float64]:
            if not ranker.version:
                return ranker.random_scores(len(candidates))
            return ranker.score(features(context, candidates))

    return Model()
