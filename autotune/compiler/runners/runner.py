"""Runners: what measures built candidates, and the device behind them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autotune.compiler.native import PROGRAMS_VARIABLE, check_disks
from autotune.compiler.runners.stable import USUAL, StabilityWatch, StableMeasurement
from autotune.compiler.target import (
    runtime_environment,
)
from autotune.compiler.workers import Message, Told, Worker, WorkerLost, warn
from autotune.measurement import Conditions, Outcome, Status, host_conditions
from autotune.scratch import Scratch

if TYPE_CHECKING:
    pass

COMPARE_TIMEOUT_S = 600.0
MODEL_KIND = "model"
_HERE = ""
Look = Callable[[], Conditions]


@dataclass(frozen=True)
class DeviceFingerprint:
    """The device a record was measured on.

    Attributes:
        name: Model name, such as the processor's or the OpenCL device's.
        kind: `cpu`, `opencl` or `qemu-user` here; `rpc-cpu` or `rpc-opencl` behind a tracker; `model` where
            nothing runs.
        driver: Driver, or what emulates the device; empty for a processor.
        details: Cores, limits and the like, by name.
        stand_in: Whether it only stands in for the target's real device.
    """

    name: str
    kind: str
    driver: str
    details: tuple[tuple[str, Any], ...]
    stand_in: bool

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "details": dict(self.details)}


@dataclass(frozen=True)
class MeasureRequest:
    """One built candidate to check and time.

    Attributes:
        library: The shared library.
        data: Folder with `input<i>.npy` and `expected<i>.npy`.
        repeats: Samples to take.
        min_repeat_ms: Shortest time of a sample; a fast kernel runs several times in each.
        give_up_s: A candidate slower than this is timed only once.
        tolerance: Largest relative error of a right result.
        timeout_s: Limit for the whole request.
    """

    library: Path
    data: Path
    repeats: int
    min_repeat_ms: float
    give_up_s: float
    tolerance: float
    timeout_s: float


@dataclass(frozen=True)
class CompareRequest:
    """Several built kernels to time against each other in interleaved blocks of random order.

    Attributes:
        libraries: The kernels.
        data: Folder with `input<i>.npy` and `expected<i>.npy`.
        blocks: How many blocks each of them is in, from the first one on.
        min_repeat_ms: Shortest time of a sample; a fast kernel runs several times in each.
        seed: Of the order.
        known: Seconds that each took before; empty where that is not known. What is known to be long is not
            executed once more to find that out, nor to be checked.
    """

    libraries: tuple[Path, ...]
    data: Path
    blocks: tuple[int, ...]
    min_repeat_ms: float
    seed: int
    known: tuple[float, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Libraries timed against each other.

    Attributes:
        samples: Seconds by library and block, from the first block on.
        max_rel_errors: Each library's largest relative error; None where it is not finite, or nothing was computed.
        device: Serial of the device; see `Outcome`.
        conditions: What the device told before and after it; see `Outcome`.
        doubt: What the device was not as it should be in; empty where all held. Ratios of a block still hold.
        rejected: Comparisons before this one that do not count.
        computed: Whether the kernels ran; False where a model told their times.
    """

    samples: tuple[tuple[float, ...], ...]
    max_rel_errors: tuple[float | None, ...]
    device: str = ""
    conditions: tuple[Conditions, ...] = ()
    doubt: str = ""
    rejected: tuple[Comparison, ...] = ()
    computed: bool = True


class Runner(Protocol):
    """Checks and times kernels on one device, each within a time limit."""

    device: DeviceFingerprint
    apart: bool
    """Whether the device is not this host: it may then measure while this host builds."""
    models: bool
    """Whether nothing runs: times follow from a schedule's traits, which is what is built then."""
    programs: Path | None
    """Where OpenCL programs for the device are kept, which build workers compile; None where they cannot."""
    told: Told
    """Is told of a process of this host that was killed by somebody else; its request is made again."""

    def at_once(self) -> int:
        """How many candidates can be measured at the same time; asked again for every round."""

    def start(self) -> None:
        """Begins what takes long, without waiting for it."""

    def measure(self, request: MeasureRequest) -> Outcome:
        """Checks one candidate against its reference and times it; a failure is an outcome."""

    def compare(self, request: CompareRequest) -> Comparison:
        """Times libraries against each other.

        Raises:
            WorkerLost: The process that ran them crashed or hung.
        """

    def interrupt(self) -> None:
        """Ends every wait for a device; what runs on one is finished. May be called from any thread."""

    def stop(self) -> None:
        """Frees the device."""


class LocalRunner:
    """Measures on this host's processor or OpenCL device, in a process that is replaced when it is lost.

    Args:
        device: What this host is.
        cpus: Cores that kernels may use; all where it is empty.
        look: What the host tells of itself.
    """

    models = False

    def __init__(
        self,
        device: DeviceFingerprint,
        *,
        cpus: Sequence[int] = (),
        look: Look = host_conditions,
    ) -> None:
        self.device = device
        self.apart = dict(device.details).get("type", "cpu") != "cpu"
        self._programs = Scratch("programs") if self.apart else None
        self.programs = None if self._programs is None else self._programs.path
        self._worker = Worker(
            "autotune.compiler.runners.run_worker",
            [device.kind, *map(str, cpus)],
            {**runtime_environment(len(cpus)), PROGRAMS_VARIABLE: str(self.programs or "")},
        )
        self._look = look
        self._stopped = threading.Event()
        self.give_up: Callable[[], bool] = lambda: False
        """Asked while the device rests: whether nobody wants the measurement any more."""
        self.told: Told = warn
        self._steady = StabilityWatch(
            device.kind, USUAL, lambda: not (self._stopped.is_set() or self.give_up())
        )

    def start(self) -> None:
        self._worker.start()

    def at_once(self) -> int:
        return 1

    def measure(self, request: MeasureRequest) -> Outcome:
        return outcome_of(self._steady.hold(lambda: self._measured(request)))

    def _measured(self, request: MeasureRequest) -> Outcome:
        self._steady.rest(_HERE, self._look)
        try:
            answer = self._asked(measurement_message(request), request.timeout_s)
        except WorkerLost as lost:
            outcome = lost_outcome(lost)
        else:
            outcome = measured(answer, request.tolerance)
        if outcome.status == "run_error":
            check_disks(outcome.message)
        return outcome

    def compare(self, request: CompareRequest) -> Comparison:
        def compared(rest: bool = True) -> Comparison:
            if rest:
                self._steady.rest(_HERE, self._look)
            return comparison(self._asked(comparison_message(request), COMPARE_TIMEOUT_S))

        return comparison_of(self._steady.hold(compared), lambda: compared(rest=False))

    def _asked(self, message: Message, timeout_s: float) -> Message:
        before = self._look()
        answer = self._worker.ask_again(message, timeout=timeout_s, told=self.told)
        return {**answer, "conditions": [before.to_json(), self._look().to_json()]}

    def interrupt(self) -> None:
        """See `Runner.interrupt`."""
        self._stopped.set()

    def renew(self) -> None:
        """Ends the process that measures, with what a driver keeps for it; the next measurement starts another."""
        self._worker.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._worker.stop()
        if self._programs is not None:
            self._programs.close()


def outcome_of(held: StableMeasurement[Outcome]) -> Outcome:
    """What became of a candidate that was measured until it counts."""
    if held.value is not None:
        return replace(held.value, rejected=held.rejected)
    status: Status = "throttled" if any(one.hot for one in held.broken) else "unstable"
    last = held.rejected[-1] if held.rejected else None
    return Outcome(
        status,
        message=held.why,
        max_rel_error=last.max_rel_error if last else None,
        device=held.serial,
        rejected=held.rejected,
    )


def comparison_of(
    held: StableMeasurement[Comparison], anyway: Callable[[], Comparison]
) -> Comparison:
    """What a comparison came to that was made until it counts; one that never did is in doubt.

    Args:
        held: The comparisons.
        anyway: Makes one whatever the device is like.
    """
    if held.value is not None:
        return replace(held.value, rejected=held.rejected)
    if not held.rejected:
        return replace(anyway(), doubt=held.why)
    return replace(held.rejected[-1], doubt=held.why, rejected=held.rejected[:-1])


def measurement_message(request: MeasureRequest) -> Message:
    """A request to check and time one candidate, as `run_worker` takes it."""
    return {
        "op": "measure",
        "library": str(request.library),
        "data": str(request.data),
        "repeats": request.repeats,
        "min_repeat_ms": request.min_repeat_ms,
        "give_up_s": request.give_up_s,
        "tolerance": request.tolerance,
    }


def measured(answer: Message, tolerance: float, *, device: str = "") -> Outcome:
    """What became of a candidate, from the answer of `run_worker`."""
    if "error" in answer:
        return Outcome("run_error", message=str(answer["error"])[:2000], device=device)
    error = math.inf if answer["max_rel_error"] is None else answer["max_rel_error"]
    if not error <= tolerance:
        return replace(wrong_result(error, tolerance), device=device)
    return Outcome("ok", tuple(answer["samples"]), "", error, device, _conditions(answer))


def _conditions(answer: Message) -> tuple[Conditions, ...]:
    return tuple(Conditions.from_json(seen) for seen in answer.get("conditions", ()))


def lost_outcome(lost: WorkerLost, *, device: str = "") -> Outcome:
    """What became of a candidate that took its process along."""
    status: Status = "timeout" if lost.timed_out else "run_error"
    return Outcome(status, message=f"run: {lost}", device=device)


def comparison_message(request: CompareRequest) -> Message:
    """A request to time libraries against each other, as `run_worker` takes it."""
    return {
        "op": "compare",
        "libraries": [str(path) for path in request.libraries],
        "data": str(request.data),
        "blocks": request.blocks,
        "min_repeat_ms": request.min_repeat_ms,
        "seed": request.seed,
        "known": list(request.known or (0.0,) * len(request.libraries)),
    }


def comparison(answer: Message, *, device: str = "") -> Comparison:
    """The samples of an answer of `run_worker`.

    Raises:
        WorkerLost: The answer is an error.
    """
    if "error" in answer:
        raise WorkerLost(str(answer["error"]), timed_out=False)
    return Comparison(
        tuple(tuple(row) for row in answer["samples"]),
        tuple(answer["max_rel_errors"]),
        device,
        _conditions(answer),
    )


def wrong_result(error: float, tolerance: float) -> Outcome:
    """The outcome of a candidate whose result is not right."""
    if not math.isfinite(error):
        text = "the output holds NaN, infinity or elements that were never written"
        return Outcome("wrong_result", message=text)
    text = f"relative error {error:.2e} is over {tolerance:.0e}"
    return Outcome("wrong_result", message=text, max_rel_error=error)
