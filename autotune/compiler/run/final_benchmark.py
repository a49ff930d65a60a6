"""The final benchmark: the best candidates of a task and the untuned default, interleaved."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.compiler.runners import CompareRequest, Comparison, Runner
from autotune.compiler.target import Measure
from autotune.compiler.workers import WorkerLost
from autotune.measurement import TIE, Interval, judge, median, verdicts

_SLOW_S = 0.25
_FEW_BLOCKS = 5
_FAR_SLOWER = 10.0
_FEWEST_BLOCKS = 3
_LEAST_GAIN = 1 + TIE
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Finalist:
    """A built candidate in the final benchmark.

    Attributes:
        digest: Digest of the candidate.
        library: Path of its library.
        seconds: Its median time in the search.
        half: Whether it stores operands in half precision.
    """

    digest: str
    library: Path
    seconds: float
    half: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of the final benchmark.

    Attributes:
        winner: Digest of the winner; the default's digest if no candidate beat it.
        default_s: Median seconds of the default; None if it could not be timed.
        winner_s: Median seconds of the winner; None if nothing could be timed.
        speedup: Time of the default over that of the winner; exactly 1 if the default wins, None without a default.
        max_rel_error: The winner's largest relative error.
        samples: Seconds by digest, one sample per block, beginning with the first block.
        message: Why there is no verdict; empty otherwise.
        movement_s: Median seconds of the winner's data movement (padding, packing, copies); None if not measured.
        ties: The default and the second best, each only if it cannot be distinguished from the winner.
        right: Digests of finalists with a correct result; of all finalists if nothing was computed.
        doubt: Conditions that the device did not meet; see `Comparison`.
        rejected: Samples of comparisons that do not count, in the form of `samples`.
    """

    winner: str
    default_s: float | None
    winner_s: float | None
    speedup: Interval | None
    max_rel_error: float | None
    samples: dict[str, tuple[float, ...]]
    message: str = ""
    movement_s: float | None = None
    ties: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    doubt: str = ""
    rejected: tuple[dict[str, tuple[float, ...]], ...] = ()


def benchmark_finalists(
    runner: Runner,
    data: Path,
    default: Finalist | None,
    tuned: Sequence[Finalist],
    measure: Measure,
    seed: int,
) -> Verdict:
    """Times tuned candidates and the default in interleaved blocks of random order, and picks the winner.

    A candidate wins only if the confidence interval of its speed-up over the default lies above 1, the speed-up is
    at least 1 %, and its result is correct again. Otherwise the default is kept.
    """
    finalists = [*([default] if default else []), *tuned]
    message = "neither the default nor any candidate has a valid time"
    while finalists:
        blocks = _blocks([finalist.seconds for finalist in finalists], measure)
        try:
            timed = runner.compare(_request(finalists, data, blocks, measure, seed))
        except WorkerLost as lost:
            message = str(lost)
            survivors = [e for e in finalists if _survives(runner, e, data, measure, seed)]
            if len(survivors) == len(finalists):
                break
            finalists = survivors
            continue
        right = _right(finalists, timed, measure)
        verdict = _judge(default, finalists, timed, right, seed)
        return replace(
            verdict,
            ties=_ties(verdict, default, seed),
            right=tuple(sorted(right)),
            doubt=timed.doubt,
            rejected=tuple(_by_digest(finalists, other) for other in timed.rejected),
        )
    return Verdict("", None, None, None, None, {}, message)


def _blocks(seconds: Sequence[float], measure: Measure) -> tuple[int, ...]:
    """Returns each finalist's number of blocks. All possible winners are in the same blocks; few if one is slow.

    A slow finalist that takes ten times as long as the fastest cannot win, and would take most of the time. It is
    in the first three blocks only.
    """
    far = max(_SLOW_S, _FAR_SLOWER * min(seconds))
    slow = any(_SLOW_S <= one <= far for one in seconds)
    near = min(_FEW_BLOCKS, measure.final_blocks) if slow else measure.final_blocks
    return tuple(min(_FEWEST_BLOCKS, near) if one > far else near for one in seconds)


def _request(
    finalists: Sequence[Finalist],
    data: Path,
    blocks: tuple[int, ...],
    measure: Measure,
    seed: int,
) -> CompareRequest:
    return CompareRequest(
        libraries=tuple(finalist.library for finalist in finalists),
        data=data,
        blocks=blocks,
        min_repeat_ms=measure.final_min_repeat_ms,
        seed=seed,
        known=tuple(finalist.seconds for finalist in finalists),
    )


def _survives(runner: Runner, finalist: Finalist, data: Path, measure: Measure, seed: int) -> bool:
    """Returns whether a finalist runs alone. Called after one of several ended the process."""
    try:
        runner.compare(_request([finalist], data, (1,), measure, seed))
    except WorkerLost:
        return False
    return True


def _by_digest(finalists: Sequence[Finalist], timed: Comparison) -> dict[str, tuple[float, ...]]:
    return {e.digest: row for e, row in zip(finalists, timed.samples, strict=True)}


def _ties(verdict: Verdict, default: Finalist | None, seed: int) -> tuple[str, ...]:
    """Returns the default and the second best, each only if it cannot be distinguished from the winner."""
    rows = dict(verdict.samples)
    if verdict.winner not in rows:
        return ()
    won = rows.pop(verdict.winner)
    first = default.digest if default else ""
    second = min((d for d in rows if d != first), key=lambda d: median(rows[d]), default=None)
    asked = [digest for digest in (first, second) if digest in rows]
    verdicts = {digest: _judged(rows[digest], won, seed) for digest in asked}
    return tuple(d for d, found in verdicts.items() if _alike(found))


def _alike(found: verdicts.Verdict) -> bool:
    """Returns whether two finalists are a tie. A gain under 1 % is a tie, even if it is significant."""
    return found.winner == "tie" or found.alike or abs(found.ratio.estimate - 1) < TIE


def _judged(first: Sequence[float], second: Sequence[float], seed: int) -> verdicts.Verdict:
    """Returns which of two is faster, by their common blocks."""
    both = min(len(first), len(second))
    return judge(first[:both], second[:both], seed=seed, confidence=_CONFIDENCE)


def _judge(
    default: Finalist | None,
    finalists: Sequence[Finalist],
    timed: Comparison,
    right: Collection[str],
    seed: int,
) -> Verdict:
    samples = _by_digest(finalists, timed)
    errors = {e.digest: x for e, x in zip(finalists, timed.max_rel_errors, strict=True)}
    candidates = [e for e in finalists if e is not default and e.digest in right]
    best = min(candidates, key=lambda e: median(samples[e.digest]), default=None)
    if default is None or default.digest not in right:
        if best is None:
            return Verdict("", None, None, None, None, samples, "no result is right any more")
        return Verdict(
            best.digest, None, median(samples[best.digest]), None, errors[best.digest], samples
        )
    base = samples[default.digest]
    if best is not None:
        found = _judged(base, samples[best.digest], seed)
        interval = found.ratio
        if found.winner == "second" and interval.estimate >= _LEAST_GAIN:
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


def _right(finalists: Sequence[Finalist], timed: Comparison, measure: Measure) -> set[str]:
    """Returns the digests of finalists with a correct result; of all finalists if a model computed the times."""
    return {
        finalist.digest
        for finalist, error in zip(finalists, timed.max_rel_errors, strict=True)
        if not timed.computed
        or (error is not None and error <= measure.allowed(half=finalist.half))
    }


def finalists(outcomes: Sequence[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """Returns the best distinct candidates by median seconds, as (digest, seconds), without failures."""
    valid = {digest: seconds for digest, seconds in outcomes if math.isfinite(seconds)}
    return sorted(valid.items(), key=lambda item: item[1])[:count]
