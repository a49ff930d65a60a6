"""The part of every page about its run: the request, the device and the versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.report.pages.html_page import download, facts
from autotune.studies.space import emulated_text

_TOLD_APART = ("tasks", "space", "kind", "step", "profile")


def device_name(device: Mapping[str, Any]) -> str:
    """Returns a device's name for people."""
    return str(device.get("model") or device.get("name") or device.get("serial") or "a device")


def emulated_notice(device: Mapping[str, Any]) -> str:
    """Returns the notice that figures come from a model; empty for a real device."""
    emulated = device.get("emulated") or ""
    return emulated_text(emulated) if emulated else ""


def request_section(
    about: Mapping[str, Any], result: Mapping[str, Any] | None, *links: str
) -> tuple[str, str]:
    """Returns the section about the request, the device and the versions, with links to the data.

    Args:
        about: Content of `run.json`.
        result: Content of `result.json`; None if there is none.
        links: More links.
    """
    request, device = about.get("request", {}), about.get("device") or {}
    options = [
        (name, _text(value))
        for name, value in request.items()
        if name not in _TOLD_APART and not isinstance(value, Mapping)
    ]
    steps = request.get("step") or request.get("profile")
    if isinstance(steps, Mapping):
        options += [(name, _text(value)) for name, value in steps.items()]
    elif steps:
        options.append(("command", _text(steps)))
    for name in ("target", "fleet", "cores"):
        for key, value in (request.get(name) or {}).items():
            if name != "target" or key == "name":
                options.append((name if name == "target" else f"{name}: {key}", _text(value)))
    versions = ", ".join(f"{name} {value}" for name, value in (about.get("versions") or {}).items())
    html = facts(
        [
            ("command line", str(about.get("command") or "")),
            ("device", _described(device)),
            *options,
            ("versions", versions),
            ("git revision", str(about.get("git") or "")),
        ]
    )
    data = download("run.json", dict(about))
    if result is not None:
        data += download("result.json", dict(result))
    return "Request and data", html + "".join(links) + data


def _described(device: Mapping[str, Any]) -> str:
    known = [device_name(device)]
    for name in ("serial", "soc", "system", "kind", "driver"):
        value = device.get(name)
        if value and str(value) not in known:
            known.append(str(value))
    return ", ".join(known)


def _text(value: Any) -> str:
    if value in (None, "", [], {}, False):
        return ""
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value) if not isinstance(value, Mapping) else json.dumps(value)
