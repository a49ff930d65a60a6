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
    "configuration": {"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4},
    "calls": [
        {"kernel": "conv", "schedule": {"digest": "d1", "formulation": "direct"}},
        {"kernel": "relu", "schedule": None},
        {"kernel": "conv", "schedule": {"digest": "d1", "formulation": "direct"}},
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
    assert plan.digests == {"conv": "d1"}
    assert plan.configuration["threads"] == 4
    assert (plan.emulated, plan.device["soc"], plan.step["model"]) == ("", "sm8150", "lenet")
    assert is_plan(path)
    assert not is_plan(tmp_path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "no plan, or a damaged one"),
        ("[]", "no plan, or a damaged one"),
        ("{}", "no plan, or a damaged one"),
        (json.dumps({**PLAN, "kind": "result"}), "is no plan"),
        (json.dumps({**PLAN, "schema_version": 9}), "version 9"),
        (json.dumps({**PLAN, "calls": [{"kernel": "x"}]}), "damaged"),
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
