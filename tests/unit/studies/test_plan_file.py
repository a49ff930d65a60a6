"""Plans as files: what is read back, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.studies.plans.plan_file import is_plan, read_plan

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
    "configuration": {"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4},
    "memory": {"planned_bytes": 64, "offsets": {"w": 0}},
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
        ("{", "it is not JSON: Expecting property name"),
        ("[]", "is not a plan"),
        ("{}", "is not a plan"),
        (json.dumps({**PLAN, "kind": "result"}), "is not a plan"),
        (json.dumps({**PLAN, "schema_version": 9}), "is a plan of version 9"),
        (json.dumps({**PLAN, "schema_version": True}), "is a plan of version True"),
        (json.dumps({**PLAN, "schema_version": 1.0}), "is a plan of version 1.0"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str, text: str) -> None:
    with pytest.raises(UsageError, match=text) as raised:
        read_plan(written(tmp_path, content))
    assert raised.value.hint


def changed(path: str, value: Any, plan: dict[str, Any] = PLAN) -> dict[str, Any]:
    """A plan with something else at a path of keys; `...` for nothing."""
    whole = json.loads(json.dumps(plan))
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]
    at = whole
    for key in keys[:-1]:
        at = at[key]
    if value is ...:
        del at[keys[-1]]
    else:
        at[keys[-1]] = value
    return dict(whole)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        *(
            (changed(name, ...), f"'{name}' is missing")
            for name in ("calls", "settings", "step", "device", "configuration", "memory", "measured")
        ),
        (changed("calls.1.schedule", ...), "'calls[1].schedule' is missing"),
        (changed("calls.0.schedule.digest", 7), "'calls[0].schedule.digest' is 7: "),
        (changed("calls", []), "'calls' is []: one or more is wanted"),
        (changed("calls", None), "'calls' is null: "),
        (changed("calls.2", "x"), "'calls[2]' is \"x\": an object is wanted"),
        (changed("calls.0.call", 7), "'calls[0].call' is 7: calls are numbered from 0"),
        (changed("calls.0.device", "npu"), "'calls[0].device' is \"npu\": "),
        (changed("calls.2.setting", 5), "'calls[2].setting' is 5, and 'settings' has 2"),
        (changed("calls.0.measured", {"time_s": "x"}), "'calls[0].measured.time_s' is \"x\": "),
        (changed("gpu", None, on_gpu()), "'gpu' is null, and the GPU makes call 2"),
        (changed("gpu.memory", "wire", on_gpu()), "'gpu.memory' is \"wire\": "),
        (on_gpu(schedule=None), "'calls[2].schedule' is null, and the GPU makes call 2"),
        (on_gpu(gpu_kernel=None), "'calls[2].gpu_kernel' is null, and the GPU makes call 2"),
        (changed("settings.0.threads", "x"), "'settings[0].threads' is \"x\": "),
        (changed("settings.1.threads", 0), "'settings[1].threads' is 0: "),
        (changed("settings.1.threads", 99), "'settings[1]': 99 threads on 1 core: 8 a core are the most"),
        (changed("settings.0.clusters.big.khz", "2 GHz"), "'settings[0].clusters.big.khz' is \"2 GHz\": "),
        (changed("settings.1.clusters.big.cores", 0), "'settings[1]': a configuration needs a core"),
        (changed("configuration", None), "'configuration' is null: "),
        (changed("configuration.threads", 99), "'configuration': 99 threads on 4 cores: 8 a core"),
        (changed("memory", None), "'memory' is null: "),
        (changed("memory.offsets.w", -1), "'memory.offsets.w' is -1: "),
        (changed("measured.time_s", None), "'measured.time_s' is null: "),
        (changed("step.model", 3), "'step.model' is 3: "),
        (changed("step.runs", "logs/a"), "'step.runs' is \"logs/a\": "),
        (changed("device.serial", ...), "'device.serial' is missing"),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_told_by_where_and_how_to_mend(
    tmp_path: Path, plan: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read_plan(written(tmp_path, json.dumps(plan)))
    assert f"best.json is not a plan, or a damaged one: {text}" in raised.value.message
    assert "\n" not in raised.value.message
    assert not [word for word in ("Error", "None", "dict", "tuple") if word in raised.value.message]
    assert raised.value.hint == "make it again: autotune joint"


def test_a_damaged_plan_of_a_run_that_is_there_is_made_again_from_it(tmp_path: Path) -> None:
    run = tmp_path / "logs" / "1-joint-sm8150"
    (run / "plans").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    with pytest.raises(UsageError) as raised:
        read_plan(written(run / "plans", json.dumps(changed("memory", None))))
    assert raised.value.hint == f"make it again: autotune joint --resume {run}"


def test_a_folder_or_nothing_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a plan is a file") as raised:
        read_plan(tmp_path)
    assert "plans/best.json" in raised.value.hint
    with pytest.raises(UsageError, match="no plan at"):
        read_plan(tmp_path / "nowhere.json")
