"""A plan on a device whose meter is of no use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import autotune, one_folder

from autotune.cli.main import main
from autotune.errors import StableDeviceError
from autotune.measurement.step_bench import StepBench

STEP = ("--emulate", "meizu-16t", "--model", "lenet", "--batch", "64")


@pytest.mark.slow
def test_a_plan_is_measured_without_joules_where_the_meter_does_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = autotune("kernels", *STEP, "--trials", "1", "--logs", tmp_path / "kernels")
    assert kernels.returncode == 0, kernels.stderr
    found = autotune(
        "joint", *STEP, "--run", one_folder(tmp_path / "kernels"), "--trials", "2", "--blocks", "1",
        "--least-seconds", "0.2", "--no-sequential", "--logs", tmp_path / "joint",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    plan = one_folder(tmp_path / "joint") / "plans" / "fastest.json"

    def refused(*_: Any) -> None:
        raise StableDeviceError("the battery's current does not follow the work")

    monkeypatch.setattr(StepBench, "calibrate", refused)
    assert main(["step", "--plan", str(plan), "--least-seconds", "0.2", "--json"]) == 0
    shown = capsys.readouterr()
    assert "no joules are measured: the battery's current does not follow the work" in shown.err
    reported = json.loads(shown.out)
    assert reported["measured"]["time_s"] > 0
    assert reported["measured"]["energy_j"] is None
