"""Required content of a plan file, and the error messages for files without it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autotune.errors import UsageError
from autotune.measurement import MemoryKind
from autotune.studies.space import CpuConfiguration

_SHOWN = 60
_WANTED = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "too_short": "one or more",
}
"""JSON's words for types, where pydantic uses Python's."""
_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    """Types follow JSON. Unknown keys are ignored (docs/reference/formats.md)."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Cluster(_Part):
    cores: _Count
    khz: Annotated[int, Field(gt=0)] | None


class _Setting(_Part):
    clusters: Annotated[dict[str, _Cluster], Field(min_length=1)]
    threads: Annotated[int, Field(ge=1)]


class _Schedule(_Part):
    digest: str


class _Figures(_Part):
    time_s: Annotated[_Number, Field(ge=0)] | None = None
    energy_j: _Number | None = None


class _Call(_Part):
    call: int | None = None
    kernel: str
    device: Literal["cpu", "gpu"]
    gpu_kernel: str | None = None
    setting: _Count
    schedule: _Schedule | None
    predicted: _Figures | None = None
    measured: _Figures | None = None


class _Gpu(_Part):
    memory: MemoryKind


class _Memory(_Part):
    planned_bytes: _Count
    offsets: dict[str, _Count]


class _Measured(_Part):
    time_s: Annotated[_Number, Field(gt=0)]
    energy_j: _Number | None = None
    memory_bytes: _Number | None = None
    celsius: _Number | None = None
    ci: dict[str, Any] | None = None


class _Step(_Part):
    model: str
    batch: int | None = None
    classes: int | None = None
    optimizer: str | None = None
    input_shape: str | None = None
    runs: list[str]
    gpu_runs: list[str] = []
    train: list[str] = []
    gpu_memory: MemoryKind | None = None
    micro_batch: int | None = None
    recompute: int | None = None
    layout: str | None = None


class _Device(_Part):
    serial: str
    soc: str | None = None


class _Plan(_Part):
    device: _Device
    profile: str | None
    step: _Step
    configuration: _Setting
    settings: Annotated[list[_Setting], Field(min_length=1)]
    calls: Annotated[list[_Call], Field(min_length=1)]
    gpu: _Gpu | None = None
    memory: _Memory
    measured: _Measured


def check(path: Path, data: Mapping[str, Any]) -> None:
    """Refuses a plan that cannot be executed.

    Args:
        path: Its file.
        data: The file's content.

    Raises:
        UsageError: Something is missing or wrong. The message gives the place, as a path of keys.
    """
    try:
        plan = _Plan.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = _keys(first["loc"])
        if first["type"] == "missing":
            raise damaged(path, f"'{where}' is missing") from error
        wanted = _WANTED.get(first["type"])
        why = f"{wanted} is wanted" if wanted else first["msg"]
        raise damaged(path, f"'{where}' is {_short(first['input'])}: {why}") from error
    for at, setting in [("configuration", plan.configuration), *_numbered(plan.settings)]:
        try:
            CpuConfiguration.from_json(setting.model_dump(), list(setting.clusters))
        except UsageError as error:
            raise damaged(path, f"'{at}': {error.message}") from error
    for number, call in enumerate(plan.calls):
        if call.call not in (None, number):
            raise damaged(path, f"'calls[{number}].call' is {call.call}: calls are numbered from 0")
        if call.setting >= len(plan.settings):
            raise damaged(
                path,
                f"'calls[{number}].setting' is {call.setting}, and 'settings' has {len(plan.settings)}",
            )
        if call.device == "gpu":
            missing = [name for name in ("gpu_kernel", "schedule") if getattr(call, name) is None]
            if missing or plan.gpu is None:
                name = f"calls[{number}].{missing[0]}" if missing else "gpu"
                raise damaged(path, f"'{name}' is null, and the GPU makes call {number}")


def damaged(path: Path, what: str) -> UsageError:
    """Returns the error for a damaged plan, with advice for making it again."""
    run = path.parent.parent
    fix = f"autotune joint --resume {run}" if (run / "run.json").is_file() else "autotune joint"
    return UsageError(
        f"{path} is not a plan, or a damaged one: {what}", hint=f"make it again: {fix}"
    )


def _numbered(settings: Sequence[_Setting]) -> list[tuple[str, _Setting]]:
    return [(f"settings[{number}]", setting) for number, setting in enumerate(settings)]


def _keys(path: Sequence[str | int]) -> str:
    place = ""
    for key in path:
        place += f"[{key}]" if isinstance(key, int) else f".{key}" if place else key
    return place


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
