"""The watch over one device: what helps is tried in order, and each hang restarts the device once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from autotune.devices import Completed
from autotune.devices.journal import Change, Journal
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import Fault, FaultPlan
from autotune.errors import RecordError
from autotune.tracker.deploy import Deployment, Service
from autotune.tracker.link import Crash, Served
from autotune.tracker.watch import Waits, Watched

WAITS = Waits(poll_s=0.01, silent_s=0.05, settle_s=0.1, lost_s=0.1, reconnect_s=1.0, reboot_s=60.0)


class Fleet:
    """One device with one server, which serves until it is stopped, killed or restarted."""

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.started: list[int] = []
        self.killed = False
        self.crashes: tuple[Crash, ...] = ()
        self.device = EmulatedDevice(
            "meizu-16t", faults=faults, programs={"autotune_server": self._server}
        )

    def _server(self, device: EmulatedDevice, argv: Sequence[str], root: bool) -> Completed:
        if "--daemon" in argv:
            self.started.append(device.boots)
            self.killed = False
        return Completed(tuple(argv), 0, b"ok 9300\n", b"")

    def served(self) -> list[Served]:
        if not self.started or self.killed or self.started[-1] != self.device.boots:
            return []
        return [
            Served(
                "k", ("127.0.0.1", 1), self.device.serial, "emulated", "aarch64", True, False,
                0, 0, None, len(self.crashes), self.crashes,
            )
        ]  # fmt: skip


def watch(
    fleet: Fleet,
    folder: Path,
    *,
    allow_reboot: bool = False,
    served: Callable[[], Sequence[Served] | None] | None = None,
) -> Watched:
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "autotune_server").write_bytes(b"\x7fELF")
    deployment = Deployment(
        fleet.device.serial, "emulated", (Service("k"),), bundle, "autotune_server", "emulated",
        "", True,
    )  # fmt: skip
    return Watched(
        deployment,
        lambda: fleet.device,
        served or fleet.served,
        tracker_port=9190,
        allow_reboot=allow_reboot,
        journals=folder / "journals",
        waits=WAITS,
    )


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_server_that_dies_is_started_anew_and_taken_away_at_the_end(tmp_path: Path) -> None:
    fleet = Fleet()
    watched = watch(fleet, tmp_path)
    watched.start()
    until(lambda: watched.status().state == "serving")
    fleet.killed = True
    until(lambda: len(fleet.started) == 2)
    until(lambda: watched.status().state == "serving")
    assert watched.status().restarts == 1
    assert len(fleet.device.forwarded) == 1
    assert fleet.device.boots == 1
    assert watched.stop(10)
    assert watched.status().state == "stopped"
    assert fleet.device.find(["/data/local/tmp/*"], timeout=5) == []
    assert (fleet.device.forwarded, fleet.device.reversed) == ({}, {})
    assert list((tmp_path / "journals").iterdir()) == []


@pytest.mark.parametrize("allowed", [True, False])
def test_a_hang_in_a_driver_restarts_the_device_once_and_only_where_that_is_allowed(
    tmp_path: Path, allowed: bool
) -> None:
    fleet = Fleet()
    watched = watch(fleet, tmp_path, allow_reboot=allowed)
    watched.start()
    until(lambda: watched.status().state == "serving")
    fleet.crashes = (Crash(7, "hung in a driver, cannot be killed", "c", 1),)
    if allowed:
        until(lambda: fleet.device.boots == 2)
    # The server remembers the hang for ever; that is no reason to restart again.
    threading.Event().wait(0.4)
    until(lambda: watched.status().state == "serving")
    assert fleet.device.boots == (2 if allowed else 1)
    assert watched.stop(10)


def test_a_device_that_goes_away_for_a_while_is_served_again(tmp_path: Path) -> None:
    fleet = Fleet(FaultPlan((Fault("offline", "session", 2, duration_s=3.0),)))
    watched = watch(fleet, tmp_path)
    watched.start()
    until(lambda: watched.status().state == "serving")
    fleet.killed = True

    def served_again() -> bool:
        fleet.device.clock.sleep(0.05)
        return watched.status().state == "serving" and not fleet.killed

    until(served_again)
    assert watched.stop(10)
    assert fleet.device.find(["/data/local/tmp/*"], timeout=5) == []


def test_a_journal_on_a_full_disk_undoes_everything_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = EmulatedDevice("meizu-16t")
    ports = [device.forward(port, timeout=5) for port in (9300, 9301, 9302)]
    journal = Journal(device, tmp_path)
    for port in ports:
        journal.note(Change(f"forward of port {port}", "forward", port=port))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert journal.undo() == []
    assert device.forwarded == {}
    with pytest.raises(RecordError, match="cannot be written"):
        journal.note(Change("one more", "forward", port=1))
    monkeypatch.undo()
    journal.close()


def test_a_tracker_that_does_not_answer_is_no_device_s_fault(tmp_path: Path) -> None:
    fleet = Fleet()
    silent = threading.Event()
    watched = watch(fleet, tmp_path, served=lambda: None if silent.is_set() else fleet.served())
    watched.start()
    until(lambda: watched.status().state == "serving")
    silent.set()
    time.sleep(0.5)
    assert (watched.status().state, watched.status().restarts) == ("serving", 0)
    silent.clear()
    fleet.killed = True
    until(lambda: watched.status().restarts == 1)
    assert watched.stop(10)


def test_what_a_device_refuses_makes_it_lost_at_once_and_is_told(tmp_path: Path) -> None:
    fleet = Fleet(FaultPlan((Fault("disk_full", time_s=0.0, duration_s=1e9),)))
    watched = watch(fleet, tmp_path)
    watched.start()
    until(lambda: watched.status().state == "lost")
    assert "No space left" in watched.status().message
    time.sleep(0.5)
    assert watched.status().state == "lost"
    assert watched.stop(10)
