"""The ranges of a search over CPU configurations, as data: `search_spaces/cpu_config/*.toml`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from autotune.errors import UsageError
from autotune.reading import FromOutside, read_toml

Together = Literal["any", "whole", "never"]


class ClusterRange(FromOutside):
    """What a search may do with a cluster."""

    cores: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = Field(
        default=None,
        description="How many cores may train; 0 leaves the cluster alone. All counts if absent.",
    )
    frequencies_khz: (
        Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1)] | None
    ) = Field(
        default=None, description="Clocks to choose among. All that the kernel offers if absent."
    )
    levels: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Maximum number of clocks, spread evenly from the lowest to the highest.",
    )


class CpuRanges(FromOutside):
    """What a search over CPU configurations may choose; `search_spaces/cpu_config/*.toml`."""

    clusters: dict[str, ClusterRange] = Field(
        default_factory=dict,
        description="By the cluster's name, as `autotune devices show` has it.",
    )
    others: ClusterRange = Field(
        default=ClusterRange(), description="Of each cluster that `clusters` does not name."
    )
    clocks: Literal["set", "free"] = Field(
        default="set",
        description="Whether clocks are set, or left to the system, as they are without root.",
    )
    together: Together = Field(
        default="any",
        description="Whether clusters may train together: any cores of them, only whole ones, or never.",
    )
    threads_per_core: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(min_length=1)
    ] = Field(
        default=(1.0,), description="Threads for each core that trains, rounded; at least one."
    )


def read_ranges(path: Path) -> CpuRanges:
    """Reads a file of `search_spaces/cpu_config`.

    Raises:
        UsageError: It cannot be read, or contains something unknown.
    """
    try:
        # Validated through JSON, because TOML's arrays are lists and the fields are tuples. JSON has no dates as
        # TOML does.
        return CpuRanges.model_validate_json(json.dumps(read_toml(path), default=str))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path}: {where}: {first['msg']}",
            hint="the schema is search_spaces/cpu_config/schema.json",
        ) from error


def schema_text() -> str:
    """Returns the JSON Schema of such a file, as shipped in `search_spaces/cpu_config/schema.json`."""
    return json.dumps(CpuRanges.model_json_schema(), indent=2, sort_keys=True) + "\n"
