"""Comparison of two runs of one kind, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.records import Kind, Run, kind_of
from autotune.report.comparing.kernels import compared_kernels
from autotune.report.comparing.searches import compared_searches
from autotune.report.comparing.steps import compared_profiles
from autotune.report.pages import device_name

SCHEMA_VERSION = 1
_COMPARED: tuple[Kind, ...] = ("kernels", "joint", "cpu-config", "profile")
"""Kinds of runs that can be compared."""
_LONG = ("tasks",)
_DEVICE = ("name", "model", "serial", "kind", "soc", "system", "abi", "driver", "details")


def compared(first: Run, second: Run) -> dict[str, Any]:
    """Compares two runs; docs/reports.md has the schema of the result.

    Raises:
        UsageError: They cannot be compared.
    """
    kind = check_comparable(first, second)
    workload, batch = _workload(first.about)
    settings = _settings(first.about, second.about)
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "workload": workload,
        "batch": batch,
        "first": _side(first),
        "second": _side(second),
        "warnings": _warnings(first, second),
        "settings": settings,
    }
    if kind == "kernels":
        more = compared_kernels(first, second)
    elif kind == "profile":
        more = compared_profiles(first, second)
    else:
        more = compared_searches(first, second)
    found["warnings"] += more.pop("warnings", [])
    return {**found, **more}


def check_comparable(first: Run, second: Run) -> Kind:
    """Returns the kind of two runs that can be compared.

    Raises:
        UsageError: They cannot be compared.
    """
    kinds = []
    for run in (first, second):
        kind = kind_of(run.about)
        if kind is None or kind not in _COMPARED:
            raise UsageError(
                f"{run.path} is not a run that can be compared",
                hint=f"give two runs of {', '.join(_COMPARED[:-1])} or {_COMPARED[-1]}",
            )
        kinds.append(kind)
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{first.path} is a run of {kinds[0]}, and {second.path} one of {kinds[1]}",
            hint="only runs of one kind can be compared",
        )
    for run in (first, second):
        run.ended()
    works = [_workload(run.about) for run in (first, second)]
    if works[0] != works[1]:
        subjects = [
            f"{work[0] or 'another program'}{f' at batch {work[1]}' if work[1] else ''}"
            for work in works
        ]
        raise UsageError(
            f"{first.path} is of {subjects[0]}, and {second.path} of {subjects[1]}",
            hint="runs of one model and one batch size can be compared",
        )
    return kinds[0]


def _workload(about: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Returns the workload: a model or an operator with its batch size, or another program."""
    request = about["request"]
    if "workload" in request:
        return request["workload"], request.get("batch")
    step = request.get("step") or request.get("profile")
    if isinstance(step, Mapping):
        return step.get("model"), step.get("batch")
    return request.get("command") or step, None


def _emulated(run: Run) -> bool:
    device = run.about.get("device") or {}
    result = run.result or {}
    return bool(device.get("emulated") or device.get("kind") == "model" or result.get("emulated"))


def _stand_in(run: Run) -> bool:
    return bool((run.result or {}).get("stand_in"))


def _side(run: Run) -> dict[str, Any]:
    request = run.about["request"]
    return {
        "run": str(run.path),
        "command": str(run.about.get("command") or ""),
        "device": device_name(run.about.get("device") or {}),
        "emulated": _emulated(run),
        "stand_in": _stand_in(run),
        "trials": (run.result or {}).get("trials", (run.result or {}).get("n_measured")),
        "seed": request.get("seed"),
    }


def _settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns differences in requests, versions and devices."""
    flat = [_flat(about) for about in (first, second)]
    names = dict.fromkeys([*flat[0], *flat[1]])
    return [
        {"name": name, "first": flat[0].get(name), "second": flat[1].get(name)}
        for name in names
        if flat[0].get(name) != flat[1].get(name)
    ]


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    device = about.get("device") or {}
    whole = {
        "": {name: value for name, value in about["request"].items() if name not in _LONG},
        "version of ": about.get("versions") or {},
        "device.": {name: device.get(name) for name in _DEVICE},
    }
    found: dict[str, Any] = {}

    def take(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                take(f"{name}.{key}", inner)
        elif isinstance(value, list):
            found[name] = json.dumps(value)
        elif value is not None:
            found[name] = value

    for prefix, values in whole.items():
        for name, value in values.items():
            take(f"{prefix}{name}", value)
    if about.get("git"):
        found["git revision"] = about["git"]
    return found


def _warnings(first: Run, second: Run) -> list[str]:
    found = []
    devices = [run.about.get("device") or {} for run in (first, second)]
    names = [device_name(device) for device in devices]
    if names[0] != names[1]:
        found.append(f"the devices differ: {names[0]} and {names[1]}")
    elif devices[0].get("serial") != devices[1].get("serial"):
        found.append(f"two devices: {devices[0].get('serial')} and {devices[1].get('serial')}")
    for word, source in (("measured by a model", _emulated), ("measured on a stand-in", _stand_in)):
        sides = [source(first), source(second)]
        if all(sides):
            found.append(f"both runs were {word}")
        elif any(sides):
            found.append(f"only the {'first' if sides[0] else 'second'} run was {word}")
    steps = [run.about["request"].get("step") or {} for run in (first, second)]
    if all(isinstance(step, Mapping) for step in steps):
        unlike = [
            name.replace("_", " ")
            for name in (
                "classes",
                "optimizer",
                "input_shape",
                "micro_batch",
                "recompute",
                "layout",
            )
            if steps[0].get(name) != steps[1].get(name)
        ]
        if unlike:
            found.append(f"the steps differ in {', '.join(unlike)}")
    for name, text in (
        ("objective", "they searched for"),
        ("trials", "they had trials:"),
        ("cluster", "they are for the clusters"),
    ):
        values = [_requested(run, name) for run in (first, second)]
        if values[0] != values[1]:
            found.append(f"{text} {values[0]} and {values[1]}")
    return found


def _requested(run: Run, name: str) -> Any:
    request = run.about["request"]
    if name == "objective":
        # The objective that was really used. A request that left it at its default has none.
        return (run.result or {}).get(name, request.get(name))
    if name == "cluster":
        return (request.get("cores") or {}).get("cluster") or "all cores"
    return request.get(name)
