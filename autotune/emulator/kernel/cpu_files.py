"""`/sys/devices/system/cpu` of an emulated kernel: cores that are switched on and off, and cpufreq."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from functools import partial

from autotune.devices import cpu_list_text
from autotune.emulator.kernel.kernel import KernelFile
from autotune.emulator.model import Policy, Soc

_CPU = "/sys/devices/system/cpu"
_WRITABLE = 0o644
_ROOT_ONLY = 0o400


def cpu_files(soc: Soc) -> dict[str, KernelFile]:
    """Files of the cores, by path."""
    every = soc.profile.cpus
    files = {
        f"{_CPU}/present": KernelFile(lambda: _line(cpu_list_text(every))),
        f"{_CPU}/possible": KernelFile(lambda: _line(cpu_list_text(every))),
        f"{_CPU}/online": KernelFile(lambda: _line(cpu_list_text(soc.online()))),
        f"{_CPU}/offline": KernelFile(lambda: _line(cpu_list_text(_off(soc)))),
    }
    for number, policy in enumerate(soc.policies):
        for cpu in policy.cluster.cpus:
            files |= _core_files(soc, policy, cpu)
        folder = f"{_CPU}/cpufreq/policy{policy.cluster.cpus[0]}"
        found = _policy_files(soc, policy, number)
        files |= {f"{folder}/{name}": file for name, file in found.items()}
    return files


def _off(soc: Soc) -> tuple[int, ...]:
    return tuple(sorted(set(soc.profile.cpus) - set(soc.online())))


def _line(text: object) -> str:
    return f"{text}\n"


def _spaced(values: Iterable[object]) -> str:
    """Formats a list as cpufreq prints it: a space after each value."""
    return "".join(f"{value} " for value in values) + "\n"


def _core_files(soc: Soc, policy: Policy, cpu: int) -> dict[str, KernelFile]:
    def switch(text: str) -> None:
        if text not in ("0", "1"):
            raise ValueError(text)
        soc.set_online(cpu, text == "1")

    def online() -> str:
        return _line(int(cpu in soc.online()))

    # The first core has work that no other may do, and stays on.
    first = cpu == 0
    files = {
        f"{_CPU}/cpu{cpu}/online": KernelFile(online) if first else KernelFile(online, switch, _WRITABLE),
    }  # fmt: skip
    if policy.cluster.capacity is not None:
        capacity = _line(policy.cluster.capacity)
        files[f"{_CPU}/cpu{cpu}/cpu_capacity"] = KernelFile(lambda: capacity)
    return files


def _policy_files(soc: Soc, policy: Policy, number: int) -> dict[str, KernelFile]:
    cluster = policy.cluster
    table = cluster.frequencies_khz

    def affected() -> tuple[int, ...]:
        return tuple(sorted(set(cluster.cpus).intersection(soc.online())))

    def current() -> str:
        return _line(soc.clocks_khz()[number])

    def shown(value: Callable[[], object]) -> KernelFile:
        return KernelFile(partial(_locked, soc, lambda: _line(value())))

    def settable(value: Callable[[], object], change: Callable[[str], None]) -> KernelFile:
        def write(text: str) -> None:
            with soc.lock:
                if not affected():
                    # All cores of the cluster are off, so there is no clock to set.
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
                soc.advance()
                change(text)

        return KernelFile(partial(_locked, soc, lambda: _line(value())), write, _WRITABLE)

    def choose(text: str) -> None:
        if text not in cluster.governors:
            raise ValueError(text)
        if text == "userspace" and policy.governor != text:
            policy.speed_khz = soc.clocks_khz()[number]
        policy.governor = text

    def set_speed(text: str) -> None:
        if policy.governor != "userspace":
            raise ValueError(text)
        policy.speed_khz = policy.nearest(_unsigned(text))

    files = {
        "related_cpus": shown(lambda: " ".join(map(str, cluster.cpus))),
        "affected_cpus": shown(lambda: " ".join(map(str, affected()))),
        "cpuinfo_min_freq": shown(lambda: table[0]),
        "cpuinfo_max_freq": shown(lambda: table[-1]),
        "cpuinfo_cur_freq": KernelFile(current, mode=_ROOT_ONLY),
        "scaling_cur_freq": KernelFile(current),
        "scaling_driver": shown(lambda: "emulated"),
        "scaling_available_frequencies": KernelFile(lambda: _spaced(table)),
        "scaling_available_governors": KernelFile(lambda: _spaced(cluster.governors)),
        "scaling_min_freq": settable(
            lambda: policy.min_khz, lambda text: policy.set_min(_unsigned(text))
        ),
        "scaling_max_freq": settable(
            lambda: policy.max_khz, lambda text: policy.set_max(_unsigned(text))
        ),
        "scaling_governor": settable(lambda: policy.governor, choose),
    }
    if "userspace" in cluster.governors:
        files["scaling_setspeed"] = settable(
            lambda: policy.speed_khz if policy.governor == "userspace" else "<unsupported>",
            set_speed,
        )
    return files


def _locked(soc: Soc, value: Callable[[], str]) -> str:
    with soc.lock:
        soc.advance()
        return value()


def _unsigned(text: str) -> int:
    """Parses a number as the kernel's `%u` does.

    Raises:
        ValueError: It is not a number.
    """
    if not text.isdecimal() or not text.isascii() or len(text) > 10:
        raise ValueError(text)
    return int(text)
