"""Meters whose values are printed lines, with this host as the device: streams, and nvidia-smi's."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from command import autotune_here
from small_phone import needs_phone, private_adb
from test_phone_end_to_end import phone

from autotune.compiler.native import observe_program
from autotune.devices.adb import AdbDevice
from autotune.devices.info import probe
from autotune.devices.journal import Journal
from autotune.devices.local import LocalDevice
from autotune.measurement.observation import parse
from autotune.measurement.observer import Observer
from autotune.measurement.setting import Setting
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_run import Band, Protocol, StepRun, Workload
from autotune.power.channels import Meter, nvml_meter, stream_meter
from autotune.power.stream import Stream

SHORT = Protocol(idle_s=1.0, settle_s=0.3, least_s=2.0, attempts=1)
IDLE_W, BUSY_W = 2.0, 12.0
TRAINER = """import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
busy = pathlib.Path(sys.argv[1])
busy.touch()
try:
    for n in range(60):
        time.sleep(0.1)
        print("step", n, flush=True)
finally:
    busy.unlink()
"""
SMI = """#!/bin/sh
# A stand-in for nvidia-smi: two GPUs, of which one tells its mean only; the first is at work while a file is there.
case "$*" in
  *-lms*) ;;
  *) echo "0, 2.0, 2.0"; echo "1, [N/A], 5.0"; exit 0 ;;
esac
sleep 1.5  # A driver that is not kept loaded takes as long.
while :; do
  if [ -e "$BUSY" ]; then echo "0, 12.0$(date +%1N), 9.0"; else echo "0, 2.0, 9.0"; fi
  echo "1, [N/A], 5.0"
  sleep 0.1
done
"""


@pytest.fixture
def work(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A file that is there while the workload runs, and the workload."""
    program = tmp_path / "train.py"
    program.write_text(TRAINER)
    return tmp_path / "busy", (sys.executable, str(program), str(tmp_path / "busy"))


def measured(
    folder: Path, command: tuple[str, ...], meter: Meter, stream: Stream | None = None
) -> StepRun:
    device = LocalDevice()
    program = observe_program.ensure(platform.machine())
    info = probe(device)
    with (
        Journal(device, folder / "journal") as journal,
        Observer(device, program, journal, android=False, stream=stream) as observer,
    ):
        workload = Workload(command, re.compile("^step"))
        bench = StepBench(
            device, info, observer, journal, workload, meter, SHORT, band=Band(-99.0, 999.0)
        )  # fmt: skip
        return bench.run(Setting(None, (None,) * len(info.clusters), 1))


@contextmanager
def meter_of(busy: Path, write: Callable[[str], object], line: str) -> Iterator[None]:
    """Writes the power of a device that works while a file is there, fifty times a second."""
    over = threading.Event()

    def go_on() -> None:
        began = time.time()
        while not over.wait(0.02):
            watts = (BUSY_W if busy.exists() else IDLE_W) + 0.01 * (time.time() % 1)
            stamps = {"epoch": time.time(), "relative": time.time() - began + 77}
            write(line.format(watts=watts, half=watts / 2, **stamps) + "\n")

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("line", ["{watts}", "{epoch},{watts}", "{relative},{watts}"])
def test_a_file_that_grows_is_a_meter(
    tmp_path: Path, work: tuple[Path, tuple[str, ...]], line: str
) -> None:
    busy, command = work
    path = tmp_path / "watts.csv"
    path.write_text("")
    with path.open("a", buffering=1) as file, meter_of(busy, file.write, line):
        meter = stream_meter(str(path))
        with Stream(meter.source) as stream:
            run = measured(tmp_path, command, meter, stream)
    assert run.status == "ok", run.message
    assert run.marks == ()
    assert run.energy is not None
    assert run.energy.joules == pytest.approx((BUSY_W - IDLE_W) * run.energy.seconds, rel=0.03)
    record = parse(run.records[1])
    assert len(record.meter) > 50
    assert 0 < record.clock_deviation_s < 0.1
    # The lines themselves are kept.
    assert path.read_text().splitlines()[-100] in "".join(run.records)


def test_a_tcp_source_that_goes_away_gives_no_joules_and_is_found_again(
    tmp_path: Path, work: tuple[Path, tuple[str, ...]]
) -> None:
    busy, command = work
    clients: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client = server.accept()[0]
            except OSError:
                return
            client.sendall(b"volts,amperes\n")
            clients.append(client)

    def write(text: str) -> None:
        for client in list(clients):
            try:
                client.sendall(text.encode())
            except OSError:
                clients.remove(client)
                client.close()

    threading.Thread(target=accept, daemon=True).start()
    meter = stream_meter(f"tcp://127.0.0.1:{server.getsockname()[1]}")
    with server, meter_of(busy, write, "{half},2.0"), Stream(meter.source) as stream:

        def cut() -> None:
            while not busy.exists():
                time.sleep(0.01)
            time.sleep(0.5)
            clients[0].shutdown(socket.SHUT_RDWR)

        cutter = threading.Thread(target=cut)
        cutter.start()
        lost = measured(tmp_path, command, meter, stream)
        cutter.join()
        again = measured(tmp_path, command, meter, stream)
    for client in clients:
        client.close()
    assert lost.energy is None
    assert "no sample for" in lost.marks[0]
    assert "closed the connection" in lost.marks[1]
    assert lost.step_s
    assert again.energy is not None
    assert again.energy.watts == pytest.approx(BUSY_W - IDLE_W, rel=0.03)


def test_lines_that_are_no_readings_are_counted_and_told(
    tmp_path: Path, work: tuple[Path, tuple[str, ...]]
) -> None:
    busy, command = work
    path = tmp_path / "watts"
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR)
    count = 0

    def write(text: str) -> None:
        nonlocal count
        count += 1
        os.write(handle, b"over-range\n" if count % 50 == 0 else text.encode())

    with meter_of(busy, write, "{watts}"), Stream(str(path)) as stream:
        run = measured(tmp_path, command, stream_meter(str(path)), stream)
    os.close(handle)
    assert run.energy is not None
    assert run.energy.watts == pytest.approx(BUSY_W - IDLE_W, rel=0.03)
    assert re.match(r"the meter: 'over-range' is not a reading.* \(\d+ such lines\)", run.marks[0])


@needs_phone
def test_the_clock_of_a_phone_is_found_over_adb(tmp_path: Path) -> None:
    """An emulated phone has this host's clock, so that the offset is known: none."""
    (tmp_path / "home").mkdir()
    with private_adb(tmp_path / "home"), phone("three-cluster") as (serial, _):
        device = AdbDevice(serial)
        program = observe_program.ensure(probe(device).abi)
        with (
            Journal(device, tmp_path) as journal,
            Observer(device, program, journal, android=True) as observer,
        ):
            offset = observer.clock()
    assert abs(offset.seconds) <= offset.deviation_s < 0.5


def test_gpus_are_read_by_nvidia_smi_beside_the_workload(
    tmp_path: Path, work: tuple[Path, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for nvidia-smi: this machine has no GPU."""
    busy, command = work
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("BUSY", str(busy))
    meter = nvml_meter("0, 2.0, 2.0\n1, [N/A], 5.0\n", 0.1)
    assert meter is not None
    run = measured(tmp_path, command, meter)
    assert run.status == "ok", run.message
    assert run.energy is not None
    assert run.energy.watts == pytest.approx(BUSY_W - IDLE_W, rel=0.03)
    assert run.rails["gpu0"] == pytest.approx(run.energy.joules)
    assert run.rails["gpu1"] == pytest.approx(0.0, abs=1e-6)
    assert parse(run.records[0]).meter[0].text.startswith("0, ")
    dies = "[ -e $BUSY ] && { echo 'lost the GPU' >&2; exit 9; }"
    smi.write_text(SMI.replace("sleep 0.1", f"{dies}; sleep 0.1"))
    lost = measured(tmp_path, command, meter)
    assert lost.energy is None
    assert "exit code 9" in " ".join(lost.marks)


def test_the_command_line_takes_both(
    tmp_path: Path, work: tuple[Path, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for nvidia-smi: this machine has no GPU."""
    busy, command = work
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    path = tmp_path / "watts.csv"
    path.write_text("")
    common = (
        "--device", "local", "--command", " ".join(command), "--steps-from", "^step",
        "--objective", "energy", "--trials", 1, "--blocks", 0, "--start-temperature", 999,
        "--least-seconds", 1, "--logs", tmp_path / "logs", "--json",
    )  # fmt: skip
    without = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{smi.parent}:{without}")
    monkeypatch.setenv("BUSY", str(busy))
    # In this process, whose idle windows are as short as the meters are fine.
    short = partial(Protocol, idle_s=SHORT.idle_s, settle_s=SHORT.settle_s)
    monkeypatch.setattr("autotune.jobs.steps.step_records.Protocol", short)
    with path.open("a", buffering=1) as file, meter_of(busy, file.write, "{epoch},{watts}"):
        for meter in (f"csv:{path}", "nvml"):
            done = autotune_here("cpu-config", *common, "--meter", meter)
            assert done.returncode == 0, done.stderr
            best = json.loads(done.stdout)["best"]
            assert best["energy_j"] == pytest.approx(10.0 * best["time_s"], rel=0.1)
    refused = autotune_here("cpu-config", *common, "--meter", "csv:tcp://127.0.0.1:1")
    assert (refused.returncode, "cannot be read" in refused.stderr) == (2, True), refused.stderr
    monkeypatch.setenv("PATH", without)
    absent = autotune_here("cpu-config", *common, "--meter", "nvml")
    assert (absent.returncode, "NVML (nvidia-smi)" in absent.stderr) == (3, True), absent.stderr
    assert "--meter csv:SOURCE" in absent.stderr
