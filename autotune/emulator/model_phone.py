"""The phone of a profile before the real adb server, and what may be done to it while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autotune.emulator import trainer
from autotune.emulator.clock import RealClock
from autotune.emulator.commands import properties
from autotune.emulator.phone import Contents, EmulatedPhone
from autotune.emulator.profile import Profile, load
from autotune.emulator.soc import Soc
from autotune.emulator.sysfs import kernel_tree
from autotune.emulator.tree import Tree
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
    "clear": "end what is wrong with the link",
}
"""What can be done to a running phone, in words for people."""


def model_phone(
    name: str, *, port: int = 0, rooted: bool | None = None, serial: str = ""
) -> EmulatedPhone:
    """A phone that is the profile's model.

    Args:
        name: A shipped profile, of a device with Android.
        port: Where its adb daemon listens on this machine's loopback; 0 takes any.
        rooted: Whether it has `su`; None for what the profile says.
        serial: The phone's own serial number; empty for one after the profile's name.

    Raises:
        UsageError: There is no such profile, or it is of a board without adb.
    """
    profile = load(name)
    if profile.android is None:
        raise UsageError(
            f"{name} is a board without adb: its model runs in process only",
            hint="emulate a phone, such as meizu-16t; boards are reached by ssh",
        )

    def tree() -> Tree:
        soc = Soc(profile, RealClock())
        return kernel_tree(soc, more=trainer.trainer_files(soc))

    return EmulatedPhone(
        tree,
        serial=serial or f"EMULATED{name.replace('-', '').upper()}",
        contents=Contents(
            properties=properties(profile),
            programs={trainer.PROGRAM: trainer.SCRIPT},
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


def do(phone: EmulatedPhone, command: str) -> None:
    """Does one of `COMMANDS` to a running phone.

    Raises:
        UsageError: There is no such command, or its number is none.
    """
    word, _, text = command.strip().partition(" ")
    plain: dict[str, Callable[[], object]] = {
        "drop": phone.faults.drop_now,
        "clear": phone.faults.clear,
        "reboot": phone.reboot,
        "garbage": lambda: setattr(phone.faults, "garbage_bytes", _GARBAGE_BYTES),
        "unauthorised": lambda: setattr(phone.faults, "unauthorised", True),
    }
    timed: dict[str, Callable[[float], object]] = {
        "offline": lambda seconds: _offline(phone, seconds),
        "hang": phone.faults.hang,
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
