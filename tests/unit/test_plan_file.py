"""Plans as files: what is read back, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.studies.plan_file import is_plan, read_plan

PLAN: dict[str, Any] = {
    "schema_version": 1,
    "kind": "plan",
    "device": {"serial": "abc", "soc": "sm8150"},
    "emulated": False,
    "profile": None,
    "step": {"model": "lenet", "runs": ["logs/a"]},
    "settings": [
        {"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4},
        {"clusters": {"big": {"cores": 1, "khz": 710400}}, "threads": 1},
    ],
    "calls": [
        {
            "kernel": "conv",
            "device": "cpu",
            "setting": 0,
            "schedule": {"digest": "d1", "formulation": "direct"},
        },
        {"kernel": "relu", "device": "cpu", "setting": 0, "schedule": None},
        {
            "kernel": "conv",
            "device": "cpu",
            "setting": 1,
            "schedule": {"digest": "d2", "formulation": "direct"},
        },
        {
            "kernel": "conv",
            "device": "cpu",
            "setting": 0,
            "schedule": {"digest": "d2", "formulation": "direct"},
        },
    ],
    "measured": {"time_s": 0.1},
}


def written(folder: Path, content: str) -> Path:
    path = folder / "best.json"
    path.write_text(content)
    return path


def test_a_plan_tells_schedules_cores_and_clocks(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(PLAN))
    plan = read_plan(path)
    assert plan.schedules == {"conv": ["d2", "d1"]}
    assert plan.used == {0: 1, 2: 0, 3: 0}
    assert plan.changes == {0: 0, 2: 1, 3: 0}
    assert [one["threads"] for one in plan.settings] == [4, 1]
    assert (plan.emulated, plan.device["soc"], plan.step["model"]) == ("", "sm8150", "lenet")
    assert is_plan(path)
    assert not is_plan(tmp_path)


def test_a_call_s_own_time_counts_before_what_was_foretold(tmp_path: Path) -> None:
    foretold = {"time_s": 2.0, "energy_j": 3.0}
    calls = [
        {**PLAN["calls"][2], "predicted": foretold, "measured": {"time_s": 4.0}},
        {**PLAN["calls"][3], "predicted": foretold, "measured": None},
        {**PLAN["calls"][0], "predicted": {"time_s": 1.0, "energy_j": None}, "measured": None},
    ]
    plan = read_plan(written(tmp_path, json.dumps({**PLAN, "calls": calls})))
    assert plan.figures == {("conv", "d2"): (3000.0, 3000.0), ("conv", "d1"): (1000.0, None)}


def on_gpu(**more: Any) -> dict[str, Any]:
    """The plan with its third call on the GPU."""
    calls = [dict(call) for call in PLAN["calls"]]
    calls[2] |= {"device": "gpu", "gpu_kernel": "conv_nchw", **more}
    return {**PLAN, "calls": calls, "gpu": {"device": "a GPU", "memory": "map"}}


def test_a_plan_tells_what_the_gpu_does(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, json.dumps(on_gpu())))
    assert dict(plan.gpu) == {2: ("conv_nchw", "d2")}
    assert (plan.on_gpu.calls, plan.on_gpu.memory) == ((2,), "map")
    # What the CPU does not make needs no schedule there.
    assert plan.used == {0: 0, 3: 1}
    assert read_plan(written(tmp_path, json.dumps(PLAN))).on_gpu.calls == ()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "no plan, or a damaged one"),
        ("[]", "no plan, or a damaged one"),
        ("{}", "no plan, or a damaged one"),
        (json.dumps({**PLAN, "kind": "result"}), "is no plan"),
        (json.dumps({**PLAN, "schema_version": 9}), "version 9"),
        (json.dumps({**PLAN, "calls": [{"kernel": "x"}]}), "damaged"),
        (json.dumps({**PLAN, "calls": []}), "damaged"),
        (json.dumps({**on_gpu(), "gpu": None}), "damaged"),
        (json.dumps({**on_gpu(), "gpu": {"memory": "wire"}}), "damaged"),
        (json.dumps(on_gpu(schedule=None)), "damaged"),
        (json.dumps(on_gpu(device="npu")), "damaged"),
        (json.dumps({**PLAN, "settings": PLAN["settings"][:1]}), "damaged"),
        (
            json.dumps({**PLAN, "settings": [{**one, "threads": "x"} for one in PLAN["settings"]]}),
            "damaged",
        ),
        (
            json.dumps({**PLAN, "settings": [{**one, "threads": 0} for one in PLAN["settings"]]}),
            "damaged",
        ),
        (json.dumps({**PLAN, "step": {"model": 3, "runs": []}}), "damaged"),
        (json.dumps({k: v for k, v in PLAN.items() if k != "measured"}), "damaged"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read_plan(written(tmp_path, content))


def test_a_folder_or_nothing_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a plan is a file") as told:
        read_plan(tmp_path)
    assert "plans/best.json" in told.value.hint
    with pytest.raises(UsageError, match="no plan at"):
        read_plan(tmp_path / "nowhere.json")
