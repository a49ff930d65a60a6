"""Samples of a meter that prints its values as lines."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.power import nvml
from autotune.power.channels import Meter


def samples(
    meter: Meter, lines: Sequence[tuple[float, str]]
) -> tuple[list[float], list[dict[str, str | None]]]:
    """Returns times and texts by channel, as `trace_of` takes them.

    With several GPUs, each has its own line, and a sample combines one line of each.

    Args:
        meter: A meter that prints its values.
        lines: Times and texts of the printed lines.
    """
    if meter.source:
        (path,) = meter.channels[0].files
        return [time_s for time_s, _ in lines], [{path: text} for _, text in lines]
    wanted = {path for channel in meter.channels for path in channel.files}
    times: list[float] = []
    texts: list[dict[str, str | None]] = []
    round_: dict[str, str | None] = {}
    for time_s, line in lines:
        round_ |= {index: text for index, text in nvml.rows([line]) if index in wanted}
        if set(round_) == wanted:
            times.append(time_s)
            texts.append(round_)
            round_ = {}
    return times, texts
