"""Checks whether kernels were tuned on the device that is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.jobs.device import ChosenDevice
from autotune.records import Run


def other_devices(runs: Sequence[Run], chosen: ChosenDevice) -> tuple[str, ...]:
    """Returns warnings about kernel runs whose times come from another device than the one that is searched.

    A tracker's key does not identify a device. Devices behind a tracker are told apart by their serials, unless the
    serials come from TVM's own server.

    Args:
        runs: The runs.
        chosen: The device that is searched.
    """
    from autotune.compiler.run import identity_of
    from autotune.compiler.target import TuneRequest

    here = chosen.name
    others: dict[str, bool] = {}
    for run in runs:
        device = run.about.get("device")
        if not device:
            continue
        name = identity_of(TuneRequest.of_run(run), device, "")[0].device
        others[name] = others.get(name, False) or _is_other(device, chosen, here)
    if foreign := [name for name, other in others.items() if other]:
        return (
            f"the kernels of --run were tuned on {', '.join(foreign)}, and the search is on {here}: a schedule "
            "that is fast there may be slow here",
        )
    if len(others) > 1:
        return (f"the kernels of --run were tuned on different devices: {', '.join(others)}",)
    return ()


def _is_other(device: Mapping[str, Any], chosen: ChosenDevice, here: str) -> bool:
    """Returns whether a kernel run's device is certainly not the chosen one."""
    serials = (device.get("details") or {}).get("serials", ())
    if serials and not any(":" in serial for serial in serials):
        return chosen.info.serial not in serials
    if serials:
        return False
    return device["name"] not in (here, chosen.info.model, chosen.info.soc)


__all__ = ["other_devices"]
