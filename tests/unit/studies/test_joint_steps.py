"""Steps with chosen schedules, measured on an emulated phone: each call takes what its schedule's loops say."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from test_joint import BIG4, CLUSTERS, exact, tasks
from test_step_bench import bench

from autotune.jobs.search.joint_plans import setting_of_calls
from autotune.measurement.setting import Setting
from autotune.measurement.step_runner import PROGRAM, StepRunner, settings_text
from autotune.studies.evaluators.device_evaluator import DeviceEvaluator
from autotune.studies.joint.joint import Choice, JointEvaluator
from autotune.studies.joint.joint_steps import DeviceSteps, FormOnDevice

FOLDER = "/tmp/joint"


def work() -> str:
    """The emulated step's files: each task once, with every schedule of its pool; then a call without a pool."""
    lines = ["memory 1000000"]
    lines += ["call 1000 1000" for _ in tasks()] + ["call 1000000 1000000"]
    lines += [
        f"schedule {call} {json.dumps(schedule.traits.to_json())}"
        for call, task in enumerate(tasks())
        for schedule in task.schedules
    ]
    return "\n".join(lines) + "\n"


def test_a_step_takes_what_its_schedules_take(tmp_path: Path) -> None:
    program = f"/tmp/{PROGRAM}"
    runner = StepRunner(PurePosixPath(program), PurePosixPath(FOLDER))
    with bench(tmp_path, workload=runner.plain()) as (device, station):
        device.files.store(f"{FOLDER}/step.work", work().encode(), 0o644)
        device.files.store(program, b"", 0o755)
        station.calibrate(Setting((4, 5, 6, 7), (None, 2419200), 4))
        figures = DeviceEvaluator(station, needs_energy=True)
        forms = [FormOnDevice(runner, (*range(len(tasks())), None))]
        steps = DeviceSteps(station, figures, forms, len(tasks()))
        rows = exact(BIG4)
        for last in (False, True):
            chosen = tuple(len(t.schedules) - 1 if last else 0 for t in tasks())
            measured = steps.measure(BIG4, Choice(chosen))
            assert measured.figures is not None, measured.message
            assert measured.raw is not None
            expected = [float(r[i][0]) for r, i in zip(rows, chosen, strict=True)]
            assert measured.raw["task_s"] == pytest.approx(expected, rel=0.1, abs=3e-6)
            assert measured.figures.time_s == pytest.approx(sum(expected), rel=0.1)
            assert measured.figures.energy_j is not None
        # The default: no core and no clock is set, and schedules are still the chosen ones.
        joint = JointEvaluator(steps, tasks(), "energy", seed=1)
        own = joint.measure(None)
        assert own.raw is not None
        assert tuple(own.raw["chosen"]) == joint.untuned.schedules
        device.run(["rm", "-rf", FOLDER, program], timeout=10)


def test_a_step_goes_round_through_its_changes() -> None:
    changes = [{"call": 2, "to": 1}, {"call": 4, "to": 0}]
    assert setting_of_calls(changes, 6) == (0, 0, 1, 1, 0, 0)
    assert setting_of_calls([{"call": 0, "to": 2}, {"call": 3, "to": 1}], 4) == (2, 2, 2, 1)


def test_a_file_of_settings_names_schedules() -> None:
    text = settings_text([Setting((4, 5), (None, 2419200), 2)], CLUSTERS, {3: 0}, {7: 2, 1: 1})
    assert text == "setting 4-5 2\nat 3 0\nuse 1 1\nuse 7 2\n"
