"""Kernel runs of another device than the one that is searched are told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotune.compiler.runners.local_devices import host_device
from autotune.devices.local import LocalDevice
from autotune.jobs.device import chosen_device as bench
from autotune.jobs.device.chosen_device import ChosenDevice
from autotune.jobs.steps.run_devices import other_devices
from autotune.records import read_run
from autotune.records.folder import Run

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"


def run_on(folder: Path, kind: str, name: str, *serials: str, cluster: str = "") -> Run:
    """The sample, as if it were of that device."""
    shutil.copytree(SAMPLE, folder)
    about = json.loads((folder / "run.json").read_text())
    details = {"serials": list(serials)} if serials else {}
    about["device"] |= {"kind": kind, "name": name, "details": details}
    if serials:
        about["request"]["fleet"] = {"tracker": "127.0.0.1:9190", "key": name}
    if cluster:
        about["request"]["cores"] = {"cluster": cluster, "cpus": [0], "emulated": ""}
    (folder / "run.json").write_text(json.dumps(about))
    return read_run(folder)


def device(kind: str, serial: str) -> ChosenDevice:
    model = bench.choose(None, (), "meizu-16t")
    if kind == "emulated":
        return model
    reached = LocalDevice() if kind == "local" else cast(Any, SimpleNamespace(kind=kind))
    return replace(model, device=reached, info=replace(model.info, serial=serial, kind=kind))


HERE = host_device().name


@pytest.mark.parametrize(
    ("searched", "runs", "reported"),
    [
        (("emulated", ""), [("model", "emulated meizu-16t")], []),
        (("emulated", ""), [("model", "emulated jetson-tx2")], ["emulated jetson-tx2", "emulated meizu-16t"]),
        (("local", "local"), [("cpu", HERE)], []),
        (("local", "local"), [("cpu", HERE), ("cpu", "Fast CPU")], ["Fast CPU", HERE]),
        (("adb", "0a1b"), [("rpc-cpu", "phones", "0a1b", "2c3d")], []),
        (("adb", "0a1b"), [("rpc-cpu", "phones", "2c3d")], ["phones", "0a1b"]),
        (("adb", "0a1b"), [("model", "emulated meizu-16t")], ["emulated meizu-16t", "0a1b"]),
        # TVM's own server tells where it is reached, and not of which device it is.
        (("adb", "0a1b"), [("rpc-cpu", "phones", "10.0.0.7:9000")], []),
        (
            ("adb", "0a1b"),
            [("rpc-cpu", "phones", "10.0.0.7:9000"), ("rpc-cpu", "pads", "10.0.0.8:9000")],
            ["phones", "pads"],
        ),
    ],
)  # fmt: skip
def test_devices_of_runs(
    tmp_path: Path, searched: tuple[str, str], runs: list[tuple[str, ...]], reported: list[str]
) -> None:
    read = [run_on(tmp_path / str(n), *one) for n, one in enumerate(runs)]
    found = other_devices(read, device(*searched))
    assert len(found) == bool(reported)
    assert all(name in found[0] for name in reported)


def test_clusters_of_a_device_are_one_device(tmp_path: Path) -> None:
    read = [
        run_on(tmp_path / name, "rpc-cpu", f"phone-{name}", "10.0.0.7:9000", cluster=name)
        for name in ("big", "little")
    ]
    assert other_devices(read, device("adb", "0a1b")) == ()
