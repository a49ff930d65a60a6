"""A small emulated phone behind a real adb server of its own, for the tests."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.devices.ports import free_port
from autotune.emulator.phone import userland
from autotune.emulator.phone.phone import Contents, EmulatedPhone

CPU = "/sys/devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy0"
_missing = userland.missing_parts() + ([] if shutil.which("adb") else ["adb"])
needs_phone = pytest.mark.skipif(bool(_missing), reason=f"missing: {'; '.join(_missing)}")


class DictTree:
    """Files with fixed contents; those in `choices` take only some values."""

    def __init__(self) -> None:
        self.files = {
            f"{CPU}/present": "0-7",
            f"{CPU}/online": "0-7",
            f"{POLICY}/related_cpus": "0-7",
            f"{POLICY}/cpuinfo_min_freq": "300000",
            f"{POLICY}/cpuinfo_max_freq": "1800000",
            f"{POLICY}/scaling_min_freq": "300000",
            f"{POLICY}/scaling_max_freq": "1800000",
            f"{POLICY}/scaling_cur_freq": "300000",
            f"{POLICY}/scaling_governor": "schedutil",
            "/sys/class/thermal/thermal_zone0/type": "cpu-0",
            "/sys/class/thermal/thermal_zone0/temp": "41000",
            "/proc/cpuinfo": "Hardware\t: Small",
            "/proc/meminfo": "MemTotal:        4000000 kB",
        }
        self.choices = {f"{POLICY}/scaling_max_freq": {"300000", "1800000"}}
        self.locked = {f"{POLICY}/secret"}
        self.files[f"{POLICY}/secret"] = "x"

    def kind(self, path: str) -> str | None:
        if path in self.files:
            return "file"
        return "folder" if any(p.startswith(f"{path.rstrip('/')}/") for p in self.files) else None

    def names(self, path: str) -> list[str]:
        kind = self.kind(path)
        if kind != "folder":
            raise OSError(errno.ENOTDIR if kind else errno.ENOENT, path)
        start = f"{path.rstrip('/')}/"
        return list({p[len(start) :].split("/")[0] for p in self.files if p.startswith(start)})

    def mode(self, path: str) -> int:
        if path in self.locked:
            return 0o200
        return 0o644 if path.rpartition("/")[2].startswith("scaling_") else 0o444

    def read(self, path: str) -> bytes:
        return f"{self.files[path]}\n".encode()

    def write(self, path: str, data: bytes) -> None:
        text = data.decode().strip()
        if text not in self.choices.get(path, {text}):
            raise OSError(errno.EINVAL, path)
        self.files[path] = text


CONTENTS = Contents(
    properties={
        "ro.product.manufacturer": "Nobody",
        "ro.product.model": "Small",
        "ro.soc.model": "S1",
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
    },
    kernel_files=("/proc/cpuinfo", "/proc/meminfo"),
    data_bytes=48 << 20,
)


@contextmanager
def private_adb(home: Path) -> Iterator[None]:
    """An adb server of the test's own: its port, its keys, its phones."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", cache)
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        patch.delenv("ANDROID_SERIAL", raising=False)
        adb("start-server")
        try:
            yield
        finally:
            adb("kill-server")


def adb(*words: str, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["adb", *words], capture_output=True, timeout=timeout)


def small_phone(**options: object) -> EmulatedPhone:
    options.setdefault("contents", CONTENTS)
    return EmulatedPhone(DictTree, serial="SMALL1", **options)  # type: ignore[arg-type]


_PROCESS = """
import sys
sys.path[:0] = {paths!r}
from small_phone import small_phone
from autotune.emulator.phone import serve

def ready(phone):
    phone.connect()
    print(phone.serial, flush=True)

serve(small_phone(), ready)
"""


@contextmanager
def phone_process() -> Iterator[str]:
    """A phone in a process of its own, connected; gives adb's name for it.

    TVM's RPC client keeps Python's lock while it waits for the device to free an object.
    """
    here = Path(__file__).parent
    code = _PROCESS.format(paths=[str(here), str(here.parents[1])])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().decode().strip()
        finally:
            child.terminate()
