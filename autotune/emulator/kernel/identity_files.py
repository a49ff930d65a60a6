"""The identity of an emulated kernel: `/proc`, the device tree, and a notice that it is emulated."""

from __future__ import annotations

from autotune.emulator.kernel.kernel import KernelFile
from autotune.emulator.model import Soc

EMULATED = "/etc/autotune-emulated"
_USER_HZ = 100
_SYSTEM_BYTES = 0.4
"""Share of the memory that the system uses (an assumption: a phone of 6 GB has about 3.5 GB free)."""


def identity_files(soc: Soc) -> dict[str, KernelFile]:
    """Returns files with the device's identity, by path."""
    profile = soc.profile
    said = {EMULATED: f"emulated: {profile.name} (SoC model)\n"}
    if profile.android is None:
        said["/proc/device-tree/model"] = f"{profile.title}\0"
        said["/proc/device-tree/compatible"] = "".join(f"{c}\0" for c in profile.compatible)
        said["/etc/os-release"] = f'PRETTY_NAME="{profile.distribution}"\nID=linux\n'
    files = {path: _constant(text) for path, text in said.items()}
    files["/proc/cpuinfo"] = KernelFile(lambda: _cpuinfo(soc))
    files["/proc/meminfo"] = KernelFile(lambda: _meminfo(soc))
    files["/proc/stat"] = KernelFile(lambda: _stat(soc))
    files["/proc/uptime"] = KernelFile(lambda: f"{soc.clock.now():.2f} 0.00\n")
    return files


def _constant(text: str) -> KernelFile:
    return KernelFile(lambda: text)


def _cpuinfo(soc: Soc) -> str:
    profile = soc.profile
    blocks = []
    for cpu in soc.online():
        part = profile.clusters[profile.cluster_of(cpu)].part
        blocks.append(
            f"processor\t: {cpu}\nFeatures\t: fp asimd aes crc32\nCPU architecture: 8\nCPU part\t: {part}\n\n"
        )
    return "".join(blocks) + f"Hardware\t: {profile.soc}\n"


def _meminfo(soc: Soc) -> str:
    total = soc.profile.memory_bytes
    used = sum(load.memory_bytes for load in soc.loads())
    free = max(0, int(total * (1 - _SYSTEM_BYTES)) - used)
    lines = {"MemTotal": total, "MemFree": free // 2, "MemAvailable": free}
    return "".join(f"{name + ':':<15} {size // 1024:>9} kB\n" for name, size in lines.items())


def _stat(soc: Soc) -> str:
    """Returns the times of each core in hundredths of a second: on a load, and idle."""
    up = soc.clock.now()
    busy = soc.busy_s()
    online = set(soc.online())

    def line(name: str, worked: float, cores: int) -> str:
        idle = max(0.0, up * cores - worked)
        return f"{name} {round(worked * _USER_HZ)} 0 0 {round(idle * _USER_HZ)} 0 0 0 0 0 0\n"

    total = line("cpu ", sum(busy.values()), len(busy))
    return total + "".join(line(f"cpu{n}", t, 1) for n, t in sorted(busy.items()) if n in online)
