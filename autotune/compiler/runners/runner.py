"""Runners, which measure built candidates, and the devices behind them."""

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
from autotune.compiler.workers import Message, Notify, Worker, WorkerLost, warn
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
    """The device that a record was measured on.

    Attributes:
        name: Model name, such as the processor's or the OpenCL device's.
        kind: `cpu`, `opencl` or `qemu-user` here; `rpc-cpu` or `rpc-opencl` behind a tracker; `model` if no kernel
            runs.
        driver: Driver or emulator of the device; empty for a processor.
        details: Number of cores, limits and so on, by name.
        stand_in: Whether it is a stand-in for the target's real device.
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
        repeats: Number of samples.
        min_repeat_ms: Shortest time of a sample; a fast kernel runs several times in each.
        give_up_s: A candidate slower than this is timed only once.
        tolerance: Largest relative error that counts as correct.
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
        blocks: Number of blocks of each library, beginning with the first block.
        min_repeat_ms: Shortest time of a sample; a fast kernel runs several times in each.
        seed: Seed of the order.
        known: Earlier times of each library in seconds; empty if unknown. A library that is known to be long gets
            no extra executions to estimate its time or to check it.
    """

    libraries: tuple[Path, ...]
    data: Path
    blocks: tuple[int, ...]
    min_repeat_ms: float
    seed: int
    known: tuple[float, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The result of timing libraries against each other.

    Attributes:
        samples: Seconds by library and block, beginning with the first block.
        max_rel_errors: Each library's largest relative error; None if it is not finite, or nothing was computed.
        device: Serial of the device; see `Outcome`.
        conditions: The device's conditions before and after; see `Outcome`.
        doubt: Conditions that the device did not meet; empty if it met all. Ratios within a block are still valid.
        rejected: Earlier comparisons that do not count.
        computed: Whether the kernels ran; False if a model computed their times.
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
    """Whether the device is separate from this host, so that it can measure while this host builds."""
    models: bool
    """Whether no kernel runs: times are computed from a schedule's traits, and only the traits are built."""
    programs: Path | None
    """Folder of the device's OpenCL programs, which build workers compile; None if they cannot."""
    notify: Notify
    """Called with a message when a process of this host was killed from outside; its request is then repeated."""

    def at_once(self) -> int:
        """Returns the number of candidates that can be measured in parallel; asked again for each round."""

    def start(self) -> None:
        """Begins slow preparations, without waiting for them."""

    def measure(self, request: MeasureRequest) -> Outcome:
        """Checks one candidate against its reference and times it. A failure is an outcome."""

    def compare(self, request: CompareRequest) -> Comparison:
        """Times libraries against each other.

        Raises:
            WorkerLost: The process that ran them crashed or hung.
        """

    def interrupt(self) -> None:
        """Ends every wait for a device. A running measurement is finished. Any thread may call it."""

    def stop(self) -> None:
        """Frees the device."""


class LocalRunner:
    """Measures on this host's processor or OpenCL device, in a process that is replaced when it is lost.

    Args:
        device: Fingerprint of this host's device.
        cpus: Cores that kernels may use; empty for all.
        look: Returns this host's conditions.
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
        """Called while the device rests; returns whether the measurement is no longer wanted."""
        self.notify: Notify = warn
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
            answer = self._answer(measurement_message(request), request.timeout_s)
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
            return comparison(self._answer(comparison_message(request), COMPARE_TIMEOUT_S))

        return comparison_of(self._steady.hold(compared), lambda: compared(rest=False))

    def _answer(self, message: Message, timeout_s: float) -> Message:
        before = self._look()
        answer = self._worker.ask_again(message, timeout=timeout_s, notify=self.notify)
        return {**answer, "conditions": [before.to_json(), self._look().to_json()]}

    def interrupt(self) -> None:
        """See `Runner.interrupt`."""
        self._stopped.set()

    def renew(self) -> None:
        """Ends the measuring process, with its driver's state. The next measurement starts a new one."""
        self._worker.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._worker.stop()
        if self._programs is not None:
            self._programs.close()


def outcome_of(held: StableMeasurement[Outcome]) -> Outcome:
    """Returns the outcome of a candidate that was measured until a measurement counted."""
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
    """Returns a comparison that was repeated until one counted. If none did, the result has `doubt`.

    Args:
        held: The comparisons.
        anyway: Makes a comparison whatever the device's conditions.
    """
    if held.value is not None:
        return replace(held.value, rejected=held.rejected)
    if not held.rejected:
        return replace(anyway(), doubt=held.why)
    return replace(held.rejected[-1], doubt=held.why, rejected=held.rejected[:-1])


def measurement_message(request: MeasureRequest) -> Message:
    """Returns the `run_worker` message to check and time one candidate."""
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
    """Returns the outcome of a candidate, from the answer of `run_worker`."""
    if "error" in answer:
        return Outcome("run_error", message=str(answer["error"])[:2000], device=device)
    error = math.inf if answer["max_rel_error"] is None else answer["max_rel_error"]
    if not error <= tolerance:
        return replace(wrong_result(error, tolerance), device=device)
    return Outcome("ok", tuple(answer["samples"]), "", error, device, _conditions(answer))


def _conditions(answer: Message) -> tuple[Conditions, ...]:
    return tuple(Conditions.from_json(seen) for seen in answer.get("conditions", ()))


def lost_outcome(lost: WorkerLost, *, device: str = "") -> Outcome:
    """Returns the outcome of a candidate whose process was lost."""
    return Outcome(status_of(lost, "run_error"), message=f"run: {lost}", device=device)


def status_of(lost: WorkerLost, crashed: Status) -> Status:
    """Returns the status of a candidate whose process was lost.

    Args:
        lost: How it was lost.
        crashed: The status if the candidate is at fault.
    """
    if lost.killed == "outside":
        return "killed"
    return "timeout" if lost.timed_out else crashed


def comparison_message(request: CompareRequest) -> Message:
    """Returns the `run_worker` message to time libraries against each other."""
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
    """Returns the comparison from an answer of `run_worker`.

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
    """Returns the outcome of a candidate whose result is wrong."""
    if not math.isfinite(error):
        text = "the output holds NaN, infinity or elements that were never written"
        return Outcome("wrong_result", message=text)
    text = f"relative error {error:.2e} is over {tolerance:.0e}"
    return Outcome("wrong_result", message=text, max_rel_error=error)
