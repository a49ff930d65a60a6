"""The XGBoost cost model that ranks schedules before they are measured.

Features are MetaSchedule's per-store features (Zheng et al., "Ansor", OSDI 2020), reduced to one vector a
schedule: the sum and the maximum over its stores. The label is the speed relative to the best seen of the same
kernel, so that one model learns from all kernels of a run.

Of tiles, whose features are few and cheap, a committee learns: each member from its own resample of what was
measured, and a tile counts as fast as the members say on average, and some of what they differ by, for where they
differ something may be found (upper confidence bounds of bagged trees, as in Hutter et al., "SMAC", LION 2011).
What is measured together is chosen with more and less of such hope (Hutter et al., "Parallel algorithm
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
"""What a measurement counts for beside its speed, so that slow ones tell something too."""
_WORTH = 256
"""What all lessons count for together, in measurements of a run's own, where there are more lessons than that."""
_HOPE = 1.5
"""Standard deviations of a committee's scores that are added to their mean."""
_FRESH_SHARE = 0.15
"""Measurements since it last learnt that make it learn anew, over all those before."""
_FRESH_SHARE_OF_COMMITTEE = 0.03
"""The same of a committee, whose features are few: nearly every round."""
# One thread: the data is small, and XGBoost's threads spin while the build workers need the cores.
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
    """What was measured of one kernel, before the run.

    Attributes:
        features: A vector for each schedule.
        seconds: What each of them took.
    """

    features: Sequence[NDArray[np.float32]]
    seconds: Sequence[float]


class ScheduleRanker:
    """Learns which schedules are fast, and predicts it for new ones.

    Args:
        seed: Seed of the model and of the random scores before it has learnt.
        warmup: Measurements needed before its predictions are used.
        members: Boosters that learn from a resample each; a single one learns from everything.
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
        """Changes whenever it has learnt anew; 0 while its scores are random."""
        return self._version

    @property
    def measurements(self) -> int:
        """How many measurements it has seen."""
        return sum(len(times) for times in self._seconds.values())

    def learn(
        self, kernel: str, features: Sequence[NDArray[np.float32]], seconds: Sequence[float]
    ) -> None:
        """Adds measurements of one kernel; a failure is given as infinity. Trains again when due."""
        self._features.setdefault(kernel, []).extend(features)
        self._seconds.setdefault(kernel, []).extend(seconds)
        total = self.measurements
        enough = total >= self._warmup or self._lessons is not None
        if enough and total >= self._trained_on * (1 + self._fresh_share):
            self._train()
            self._trained_on = total if self._boosters else 0

    def teach(self, lessons: Sequence[Lesson]) -> None:
        """Has it learn what was measured of other kernels before the run; it needs no warm-up then.

        They take the place of earlier lessons.
        """
        told = [one for one in lessons if one.seconds]
        if not told:
            return
        rows = np.concatenate([np.stack(one.features) for one in told])
        labels = np.concatenate([np.min(one.seconds) / np.asarray(one.seconds) for one in told])
        self._lessons = rows, labels
        self._train()

    def score(self, features: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
        """Predicted relative speeds, higher is faster; random until enough has been learnt."""
        if not self._boosters:
            return self.random_scores(len(features))
        (hoped,) = self.hoped(features, (_HOPE,))
        return np.asarray(hoped)

    def hoped(
        self, features: Sequence[NDArray[np.float32]], hopes: Sequence[float]
    ) -> NDArray[np.float64]:
        """Predicted relative speeds, with each of so many standard deviations of the members'; it must have learnt.

        Returns:
            A row for each hope, of shape [hopes, features].
        """
        rows = np.stack(features)
        said = np.stack([one.inplace_predict(rows) for one in self._boosters]).astype(np.float64)
        hoped: NDArray[np.float64] = said.mean(axis=0) + np.outer(hopes, said.std(axis=0))
        return np.maximum(hoped, 1e-6)

    def random_scores(self, count: int) -> NDArray[np.float64]:
        """Scores of a model that knows nothing."""
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
        """The measurements that a booster learns from: a single one from all of them, a member from a resample."""
        if self._members == 1:
            return np.arange(count)
        return self._resampling.integers(count, size=count)


class FeatureExtractor:
    """One feature vector a schedule: sum and maximum of its per-store features.

    Extraction lowers the schedule, which takes milliseconds, and the search asks for the same schedules again
    and again; so what was extracted is kept by the program's structural hash.
    """

    def __init__(self) -> None:
        self._known: dict[int, NDArray[np.float32]] = {}

    def __call__(self, context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
        """Feature vectors of `MeasureCandidate`s of one tuning context, in their order."""
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
    """Wraps a ranker as the `CostModel` that MetaSchedule's evolutionary search asks."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    @derived_object
    class Model(PyCostModel):  # type: ignore[misc]  # TVM ships no annotations
        def load(self, path: str) -> None:
            raise NotImplementedError("the model is trained again from a run's records")

        def save(self, path: str) -> None:
            raise NotImplementedError("the model is trained again from a run's records")

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            """Learning happens in `FormulationSearch.observe`, which knows the failures too."""

        def predict(self, context: Any, candidates: Any) -> NDArray[np.float64]:
            if not ranker.version:
                return ranker.random_scores(len(candidates))
            return ranker.score(features(context, candidates))

    return Model()
