"""Prepares the device that the command line names for measurements."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.console import ended_by_signals
from autotune.devices import EMULATED_KIND, Device, DeviceInfo, Journal, LocalDevice, held, probe
from autotune.errors import DeviceError, TransientDeviceError, UsageError, choices
from autotune.jobs.device.left_behind import restore_left_behind
from autotune.jobs.device.settings import boards
from autotune.measurement import Band, Observer, Protocol, StepBench, Workload
from autotune.power import Meter, Stream, channels, nvml, stream
from autotune.scratch import Scratch

if TYPE_CHECKING:
    from autotune.studies.space import CpuRanges

Program = Callable[[Observer], Workload]
_METERS = ("odpm", "hwmon", "iio", "rapl", "battery", "nvml")
_CALL_S = 20.0
_GPU_INTERVAL_S = 0.1
"""GPUs update their power reading about ten times a second."""


@dataclass(frozen=True)
class ChosenDevice:
    """A chosen device, and the function that lets time pass on it."""

    device: Device
    info: DeviceInfo
    sleep: Callable[[float], None]

    @property
    def name(self) -> str:
        """The device's name in runs, of kernels too."""
        from autotune.emulator.device import EmulatedDevice

        if isinstance(self.device, EmulatedDevice):
            return f"emulated {self.device.profile.name}"
        if self.device.kind == LocalDevice.kind:
            from autotune.compiler.runners import host_device

            return host_device().name
        return f"{self.info.serial} ({self.info.soc})"

    def about(self) -> dict[str, Any]:
        """Returns the device as `run.json` stores it."""
        return self.info.to_json() | {"name": self.name}


def choose(serial: str | None, ssh: Sequence[str], emulate: str | None) -> ChosenDevice:
    """Returns the one device to measure on. First undoes changes that an earlier run left on it.

    Raises:
        UsageError: The options match no device, or several.
        DeviceError: The device is not connected, or another run holds it.
    """
    from autotune.devices import discovery

    if emulate is not None:
        if serial is not None:
            raise UsageError("--emulate and --device exclude each other", hint="give one of them")
        from autotune.emulator.device import EmulatedDevice, observing

        device = EmulatedDevice(emulate, programs=observing())
        return ChosenDevice(device, probe(device), device.clock.sleep)
    restore_left_behind()
    found = discovery.choose([serial] if serial else [], [*boards(), *ssh])
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} devices are ready: {', '.join(s for s, _ in found)}",
            hint="name one with --device",
        )
    # If another run holds the device, fail now, before a step is built for it.
    with held(*found[0]):
        reached = discovery.reach(*found[0])
        return ChosenDevice(reached, probe(reached), time.sleep)


def check_meter(name: str, *, needed: bool) -> None:
    """Refuses a meter that no device has.

    Raises:
        UsageError: There is no such name, or a meter is needed and `none` is given.
    """
    if name.startswith(stream.PREFIX):
        stream.check(name.removeprefix(stream.PREFIX))
    elif name not in ("auto", "none", *_METERS):
        raise UsageError(
            f"there is no meter '{name}'",
            hint=choices(name, ("auto", "none", *_METERS, "csv:SOURCE")),
        )
    elif needed and name == "none":
        raise UsageError(
            "--meter none, where the objective or a limit needs joules",
            hint="leave --meter out, or give --objective latency",
        )


def find_meter(chosen: ChosenDevice, name: str, *, needed: bool) -> Meter | None:
    """Returns the meter with this name, or the best meter for `auto`.

    Raises:
        UsageError: There is no such name; see `check_meter`.
        DeviceError: The device has no meter, and one is needed.
    """
    check_meter(name, needed=needed)
    if name.startswith(stream.PREFIX):
        source = name.removeprefix(stream.PREFIX)
        if chosen.device.kind == EMULATED_KIND:
            raise UsageError(
                "--emulate has a clock of its own, which no meter of this host shares",
                hint="leave --meter out: the model has a meter",
            )
        return channels.stream_meter(source)
    found: list[Meter] = []
    if name not in ("none", "nvml"):
        files = chosen.device.collect(channels.PATTERNS, timeout=_CALL_S)
        every = channels.find(files, any_chip=name == "hwmon")
        found = [m for m in every if name in ("auto", m.name)]
    if name == "nvml" or (name == "auto" and not found):
        found = _gpu_meter(chosen.device)
    if found:
        return found[0]
    if needed:
        what = "no meter" if name == "auto" else f"no meter '{name}'"
        raise DeviceError(
            f"{chosen.device.serial} has {what}, and the objective needs joules; "
            f"looked for: {channels.looked_for()}",
            hint="let a program write the watts of an external meter and give --meter csv:SOURCE, or be root where "
            "only root may read a meter; --objective latency needs none",
        )
    return None


def _gpu_meter(device: Device) -> list[Meter]:
    for instant in (True, False):
        try:
            done = device.run(nvml.query(instant=instant), timeout=_CALL_S)
        except TransientDeviceError:
            return []  # A driver that hangs. A device that is gone is reported at the next call.
        if done.exit_code == 0 and (found := channels.nvml_meter(done.text, _GPU_INTERVAL_S)):
            return [found]
    return []


def on_device(command: str, step: str) -> Program:
    """Returns a program that is already on the device.

    Args:
        command: The program and its arguments, as a shell splits them. `{threads}` stands for the number of
            threads.
        step: A regular expression that matches the line printed at the end of a step.

    Raises:
        UsageError: The command or the expression cannot be parsed.
    """
    try:
        pattern = re.compile(step)
    except re.error as error:
        raise UsageError(f"--steps-from '{step}' is not a regular expression: {error}") from error
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--command cannot be read: {error}") from error
    return lambda _: Workload(words, pattern)


@contextmanager
def ready(
    chosen: ChosenDevice,
    bring: Program,
    meter: Meter | None,
    protocol: Protocol,
    band: Band | None,
) -> Iterator[StepBench]:
    """Yields a bench for a workload on the device. Changes to the device are journalled, and undone at the end.

    Args:
        chosen: The device.
        bring: Copies the workload to the device.
        meter: The meter that gives joules; None to measure times only.
        protocol: How runs are measured.
        band: See `StepBench`.

    Raises:
        UsageError: The meter's source gives no values.
        ToolchainError: The observer program cannot be built.
        DeviceError: The device is gone, or another run holds it.
    """
    program = _program(chosen)
    with ExitStack() as stack:
        source = stack.enter_context(Stream(meter.source)) if meter and meter.source else None
        stack.enter_context(ended_by_signals())
        stack.enter_context(held(chosen.device.serial, chosen.device.kind))
        # A model lives in this process and ends with it, so changes left by a kill need not be undone.
        own = chosen.device.kind == EMULATED_KIND
        notes = stack.enter_context(Scratch("notes")) if own else None
        journal = stack.enter_context(Journal(chosen.device, notes))
        android = chosen.info.sdk is not None
        observer = stack.enter_context(
            Observer(
                chosen.device,
                program,
                journal,
                android=android,
                stream=source,
                sleep=chosen.sleep,
            )
        )
        yield StepBench(
            chosen.device,
            chosen.info,
            observer,
            journal,
            bring(observer),
            meter,
            protocol,
            band=band,
            sleep=chosen.sleep,
        )


def _program(chosen: ChosenDevice) -> Path:
    from autotune.compiler.native import observe_program

    if chosen.device.kind == EMULATED_KIND:
        # The model stands in for the program, so any file will do.
        return Path(__file__)
    return observe_program.ensure(
        chosen.info.abi, lambda line: print(f"autotune: {line}", file=sys.stderr)
    )


def ranges(space: str | None) -> CpuRanges:
    """Returns the ranges that `--space` allows: the name of a file in `search_spaces/cpu_config/`, or a path.

    Raises:
        UsageError: There is no such file, or it contains something unknown.
    """
    from autotune.compiler.target import spaces
    from autotune.studies.space import CpuRanges, read_ranges

    if space is None:
        return CpuRanges()
    folder = spaces.folder() / "cpu_config"
    names = sorted(path.stem for path in folder.glob("*.toml"))
    if space in names and not Path(space).exists():
        return read_ranges(folder / f"{space}.toml")
    if not Path(space).exists():
        raise UsageError(
            f"--space '{space}' is not a file",
            hint=f"{choices(space, names)}; or give a TOML file",
        )
    return read_ranges(Path(space))
