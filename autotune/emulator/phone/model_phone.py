"""A profile's phone for the real adb server, and commands that affect it while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autotune.emulator.device import properties
from autotune.emulator.kernel import MeterState, Tree, kernel_tree, thermal
from autotune.emulator.model import Profile, RealClock, Soc, load
from autotune.emulator.phone import trainer
from autotune.emulator.phone.phone import Contents, EmulatedPhone
from autotune.errors import UsageError

_KERNEL_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/etc/autotune-emulated")

_GARBAGE_BYTES = 64

COMMANDS = {
    "drop": "break the connection now",
    "offline SECONDS": "break it and refuse new ones for a time",
    "hang SECONDS": "stop answering for a time",
    "slow BYTES_PER_SECOND": "a slow link",
    "garbage": "answer with noise, once",
    "unauthorised": "trust this computer no more",
    "reboot": "restart the phone",
    "throttle LEVEL": "cap the clocks as at a trip point; 0 ends it",
    "deny": "refuse every write to the kernel's files, to root as well",
    "stuck": "the meters show one value from now on",
    "saturate WATTS": "the meters show so much at most",
    "clear": "end all that is wrong",
}
"""Commands for a running phone, described for people."""


class ModelPhone(EmulatedPhone):
    """An emulated phone whose kernel is a profile's model.

    Attributes:
        soc: The model since the last boot; None before the first.
        meters: Faults of its meters.
        denied: Whether writes to the kernel's files are refused.
    """

    def __init__(self, profile: Profile, **how: Any) -> None:
        super().__init__(self._kernel, **how)
        self._profile = profile
        self.soc: Soc | None = None
        self.meters = MeterState()
        self.denied = False

    def _kernel(self) -> Tree:
        self.soc, self.meters, self.denied = Soc(self._profile, RealClock()), MeterState(), False
        return kernel_tree(
            self.soc,
            meters=self.meters,
            writable=lambda: not self.denied,
            more=trainer.trainer_files(self.soc),
        )

    def throttle(self, level: float) -> None:
        """Caps the clocks as if `level` trip points were passed."""
        if self.soc is not None:
            self.soc.force_throttle(round(level))

    def stick(self) -> None:
        """Makes the meters keep their present readings."""
        if self.soc is not None and self.tree is not None:
            self.meters.stuck_since_s = self.soc.clock.now()

    def clear(self) -> None:
        """Removes the faults of the link and the kernel."""
        self.faults.clear()
        self.throttle(0)
        self.denied = False
        self.meters.stuck_since_s = self.meters.limit_w = None


def model_phone(
    name: str, *, port: int = 0, rooted: bool | None = None, serial: str = ""
) -> ModelPhone:
    """Returns a phone that is the profile's model.

    Args:
        name: A shipped profile of a device with Android.
        port: Listening port of its adb daemon on this machine's loopback; 0 takes any.
        rooted: Whether it has `su`; None for the profile's value.
        serial: The phone's own serial number; if empty, derived from the profile's name.

    Raises:
        UsageError: There is no such profile, or it is of a board without adb.
    """
    profile = load(name)
    if profile.android is None:
        raise UsageError(
            f"{name} is a board without adb: its model runs in process only",
            hint="emulate a phone, such as meizu-16t; boards are reached by ssh",
        )
    return ModelPhone(
        profile,
        serial=serial or f"EMULATED{name.replace('-', '').upper()}",
        contents=Contents(
            properties=properties(profile),
            programs={
                trainer.PROGRAM: trainer.SCRIPT,
                thermal.PROGRAM: thermal.SCRIPT,
            },
            kernel_files=_KERNEL_FILES,
        ),
        rooted="su" if (profile.rooted if rooted is None else rooted) else "no",
        port=port,
        emulates=_what(profile),
    )


def _what(profile: Profile) -> str:
    return f"emulated: {profile.name} (SoC model, programs under qemu-user)"


def _offline(phone: EmulatedPhone, seconds: float) -> None:
    phone.faults.refuse = True
    back = threading.Timer(seconds, lambda: setattr(phone.faults, "refuse", False))
    back.daemon = True
    back.start()


def do(phone: ModelPhone, command: str) -> None:
    """Applies one of `COMMANDS` to a running phone.

    Raises:
        UsageError: There is no such command, or its number is invalid.
    """
    word, _, text = command.strip().partition(" ")
    plain: dict[str, Callable[[], object]] = {
        "drop": phone.faults.drop_now,
        "clear": phone.clear,
        "deny": lambda: setattr(phone, "denied", True),
        "stuck": phone.stick,
        "reboot": phone.reboot,
        "garbage": lambda: setattr(phone.faults, "garbage_bytes", _GARBAGE_BYTES),
        "unauthorised": lambda: setattr(phone.faults, "unauthorised", True),
    }
    timed: dict[str, Callable[[float], object]] = {
        "offline": lambda seconds: _offline(phone, seconds),
        "hang": phone.faults.hang,
        "throttle": phone.throttle,
        "saturate": lambda watts: setattr(phone.meters, "limit_w", watts),
        "slow": lambda rate: setattr(phone.faults, "bytes_per_second", rate),
    }
    if word in plain and not text:
        plain[word]()
        return
    try:
        timed[word](float(text))
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"'{command.strip()}' is nothing that can be done to a phone", hint=", ".join(COMMANDS)
        ) from error
