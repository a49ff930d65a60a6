"""The last timing: a task's best few candidates against the untuned default, interleaved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.compiler.reference_data import TOLERANCE
from autotune.compiler.runner import CompareRequest, Comparison, Runner
from autotune.compiler.spaces import Measure
from autotune.compiler.workers import WorkerLost
from autotune.measurement import Interval, median, paired_speedup

_SLOW_DEFAULT_S = 0.25
_FEW_BLOCKS = 5
_LEAST_GAIN = 1.01


@dataclass(frozen=True)
class Entrant:
    """A built candidate in the last timing; `seconds` is its median from the search."""

    digest: str
    library: Path
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """What the last timing found.

    Attributes:
        winner: Digest of the winner; the default's own where nothing beat it.
        default_s: Median seconds of the default; None if it could not be timed.
        winner_s: Median seconds of the winner; None if nothing could be timed.
        speedup: Default over winner; exactly 1 when the default wins, None without a default.
        max_rel_error: The winner's largest relative error.
        samples: Seconds by digest, a sample a block.
        message: Why there is no verdict; empty otherwise.
        movement_s: Median seconds of what the winner only moves: padding, packing, copies; None if not measured.
    """

    winner: str
    default_s: float | None
    winner_s: float | None
    speedup: Interval | None
    max_rel_error: float | None
    samples: dict[str, tuple[float, ...]]
    message: str = ""
    movement_s: float | None = None


def settle(
    runner: Runner,
    data: Path,
    default: Entrant | None,
    entrants: Sequence[Entrant],
    measure: Measure,
    seed: int,
) -> Verdict:
    """Times entrants and default in interleaved blocks of random order and picks the winner.

    A candidate wins only if the confidence interval of its speed-up over the default lies above 1, the speed-up is
    1 % at least, and its result is right once more; otherwise the default is kept.
    """
    contestants = [*([default] if default else []), *entrants]
    message = "neither the default nor any candidate has a valid time"
    while contestants:
        slowest = max(entrant.seconds for entrant in contestants)
        blocks = measure.final_blocks if slowest < _SLOW_DEFAULT_S else _FEW_BLOCKS
        try:
            timed = runner.compare(_request(contestants, data, blocks, measure, seed))
        except WorkerLost as lost:
            message = str(lost)
            survivors = [e for e in contestants if _survives(runner, e, data, measure, seed)]
            if len(survivors) == len(contestants):
                break
            contestants = survivors
            continue
        return _judge(default, contestants, timed, seed)
    return Verdict("", None, None, None, None, {}, message)


def _request(
    contestants: Sequence[Entrant], data: Path, blocks: int, measure: Measure, seed: int
) -> CompareRequest:
    return CompareRequest(
        libraries=tuple(entrant.library for entrant in contestants),
        data=data,
        blocks=blocks,
        min_repeat_ms=measure.final_min_repeat_ms,
        seed=seed,
    )


def _survives(runner: Runner, entrant: Entrant, data: Path, measure: Measure, seed: int) -> bool:
    """Whether a contestant runs alone; asked when one of several brought the process down."""
    try:
        runner.compare(_request([entrant], data, 1, measure, seed))
    except WorkerLost:
        return False
    return True


def _judge(
    default: Entrant | None, contestants: Sequence[Entrant], timed: Comparison, seed: int
) -> Verdict:
    samples = {e.digest: row for e, row in zip(contestants, timed.samples, strict=True)}
    errors = {e.digest: x for e, x in zip(contestants, timed.max_rel_errors, strict=True)}

    def right(entrant: Entrant) -> bool:
        error = errors.get(entrant.digest)
        return error is not None and error <= TOLERANCE

    candidates = [entrant for entrant in contestants if entrant is not default and right(entrant)]
    best = min(candidates, key=lambda e: median(samples[e.digest]), default=None)
    if default is None or not right(default):
        if best is None:
            return Verdict("", None, None, None, None, samples, "no result is right any more")
        return Verdict(
            best.digest, None, median(samples[best.digest]), None, errors[best.digest], samples
        )
    base = samples[default.digest]
    if best is not None:
        interval = paired_speedup(base, samples[best.digest], seed=seed)
        if interval.low > 1.0 and interval.estimate >= _LEAST_GAIN:
            return Verdict(
                best.digest,
                median(base),
                median(samples[best.digest]),
                interval,
                errors[best.digest],
                samples,
            )
    return Verdict(
        default.digest,
        median(base),
        median(base),
        Interval(1.0, 1.0, 1.0),
        errors[default.digest],
        samples,
    )


def finalists(outcomes: Sequence[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """The best distinct candidates by median seconds: (digest, seconds), failures left out."""
    valid = {digest: seconds for digest, seconds in outcomes if math.isfinite(seconds)}
    return sorted(valid.items(), key=lambda item: item[1])[:count]
