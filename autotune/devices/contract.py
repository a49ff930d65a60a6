"""Checks of the promises that every `Device` must keep, for tests of new kinds of device.

Each check takes a device and an empty folder on it, and raises `AssertionError` if the promise is broken:

    @pytest.mark.parametrize("check", contract.CHECKS, ids=contract.name)
    def test_contract(check): check(my_device(), PurePosixPath("/tmp/x"))
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from autotune.devices.device import Device
from autotune.devices.info import probe
from autotune.errors import StableDeviceError, TransientDeviceError

Check = Callable[[Device, PurePosixPath], None]

_T = 20.0
_LATE_S = 6.0
_STRANGE = (
    "two words",
    "it's",
    '"quoted"',
    "$HOME",
    "*",
    "a\\b",
    "new\nline",
    "käse",
    "-n",
    ";true",
)


def a_command_gives_its_output(device: Device, folder: PurePosixPath) -> None:
    """Checks that standard output and exit code are the command's own."""
    done = device.run(["echo", "here", "it", "is"], timeout=_T)
    assert (done.exit_code, done.stdout) == (0, b"here it is\n"), done


def a_failing_command_is_a_result(device: Device, folder: PurePosixPath) -> None:
    """Checks that a command that fails raises nothing, and says why."""
    done = device.run(["cat", str(folder / "absent")], timeout=_T)
    assert done.exit_code != 0, done
    assert done.stdout == b"", done
    assert b"absent" in done.stderr, done
    assert "absent" in done.complaint


def an_unknown_command_is_a_result(device: Device, folder: PurePosixPath) -> None:
    """Checks that a missing program ends with the shell's 127."""
    assert device.run(["no-such-program-here"], timeout=_T).exit_code == 127


def arguments_are_literal(device: Device, folder: PurePosixPath) -> None:
    """Checks that arguments are taken literally, without a shell."""
    for text in _STRANGE:
        path = folder / "sub" / text.replace("/", "")
        assert device.run(["mkdir", "-p", str(path)], timeout=_T).exit_code == 0, text
        assert device.find([str(folder / "sub")], timeout=_T), text
        assert device.run(["rm", "-rf", str(path)], timeout=_T).exit_code == 0, text
    assert not device.find([f"{folder}/sub/*"], timeout=_T)


def files_survive_the_way_there_and_back(device: Device, folder: PurePosixPath) -> None:
    """Checks that pushed bytes can be pulled unchanged, whatever they are, and that missing folders are made."""
    data = bytes(range(256)) * 4096 + b"\r\n\0end"
    with tempfile.TemporaryDirectory() as here:
        source, back = Path(here) / "data.bin", Path(here) / "back.bin"
        source.write_bytes(data)
        device.push(source, folder / "deep" / "data.bin", timeout=_T)
        device.pull(folder / "deep" / "data.bin", back, timeout=_T)
        found = hashlib.sha256(back.read_bytes()).hexdigest()
    assert found == hashlib.sha256(data).hexdigest()


def a_pushed_program_runs(device: Device, folder: PurePosixPath) -> None:
    """Checks that a pushed file keeps its mode."""
    with tempfile.TemporaryDirectory() as here:
        script = Path(here) / "hello"
        script.write_text("#!/bin/sh\necho hello from $1\n", encoding="utf-8")
        script.chmod(0o755)
        device.push(script, folder / "hello", timeout=_T)
    done = device.run([str(folder / "hello"), "there"], timeout=_T)
    assert (done.exit_code, done.text) == (0, "hello from there"), done


def small_files_are_read_and_written(device: Device, folder: PurePosixPath) -> None:
    """Checks that written text is read back unchanged."""
    path = folder / "setting"
    _put(device, path, b"old")
    device.write(path, b"1804800", timeout=_T)
    assert device.read(path, timeout=_T) == b"1804800"


def absent_files_are_refused(device: Device, folder: PurePosixPath) -> None:
    """Checks that the device refuses to read or write an absent file, and makes no file."""
    for call in (
        lambda: device.read(folder / "absent", timeout=_T),
        lambda: device.write(folder / "absent", b"1", timeout=_T),
    ):
        try:
            call()
        except StableDeviceError as error:
            assert "absent" in error.message
        else:
            raise AssertionError("an absent file was not refused")
    assert not device.find([str(folder / "absent")], timeout=_T)


def many_files_are_collected_at_once(device: Device, folder: PurePosixPath) -> None:
    """Checks that patterns are expanded, that absent files are left out, and that contents are complete."""
    for name in ("policy0", "policy4", "other"):
        _put(device, folder / name, f"{name} 1\n2".encode())
    found = device.collect([f"{folder}/policy*", f"{folder}/absent*"], timeout=_T)
    assert set(found) == {f"{folder}/policy0", f"{folder}/policy4"}, found
    text = found[f"{folder}/policy4"]
    assert text is not None
    assert text.strip() == b"policy4 1\n2", found
    assert sorted(device.find([f"{folder}/policy*", f"{folder}/x"], timeout=_T)) == sorted(found)


def nothing_outlasts_its_limit(device: Device, folder: PurePosixPath) -> None:
    """Checks that a command that does not end is given up at the limit."""
    began = time.monotonic()
    try:
        device.run(["sleep", "60"], timeout=1.0)
    except TransientDeviceError as error:
        assert device.serial in error.message
    else:
        raise AssertionError("the limit was not kept")
    assert time.monotonic() - began < 1.0 + _LATE_S


def root_is_given_or_refused(device: Device, folder: PurePosixPath) -> None:
    """Checks that `rooted` says whether `root=True` works."""
    if device.rooted():
        assert device.run(["id", "-u"], timeout=_T, root=True).text == "0"
        return
    try:
        device.run(["id", "-u"], timeout=_T, root=True)
    except StableDeviceError:
        return
    raise AssertionError("root was not refused")


def ports_are_given_and_taken_back(device: Device, folder: PurePosixPath) -> None:
    """Checks that ports are numbers of either side, and that taking one back twice does no harm."""
    here = device.forward(9399, timeout=_T)
    there = device.reverse(9398, timeout=_T)
    assert 0 < here < 65536, here
    assert 0 < there < 65536, there
    for _ in range(2):
        device.unforward(here, timeout=_T)
        device.unreverse(there, timeout=_T)


def it_says_what_it_is(device: Device, folder: PurePosixPath) -> None:
    """Checks that `probe` finds cores, each in one cluster."""
    info = probe(device)
    assert (info.serial, info.kind) == (device.serial, device.kind)
    cpus = [cpu for cluster in info.clusters for cpu in cluster.cpus]
    assert cpus, info
    assert len(cpus) == len(set(cpus)), info
    assert info.abi, info
    assert info.rooted == device.rooted()


def _put(device: Device, path: PurePosixPath, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as here:
        source = Path(here) / "file"
        source.write_bytes(data)
        device.push(source, path, timeout=_T)


CHECKS: tuple[Check, ...] = (
    a_command_gives_its_output,
    a_failing_command_is_a_result,
    an_unknown_command_is_a_result,
    arguments_are_literal,
    files_survive_the_way_there_and_back,
    a_pushed_program_runs,
    small_files_are_read_and_written,
    absent_files_are_refused,
    many_files_are_collected_at_once,
    nothing_outlasts_its_limit,
    root_is_given_or_refused,
    ports_are_given_and_taken_back,
    it_says_what_it_is,
)


def name(check: Check) -> str:
    """Returns a check's name, for test reports."""
    return getattr(check, "__name__", str(check))
