"""The page of a kernel run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autotune.records import Result, TaskResult, step_shares
from autotune.report.pages.about import device_name, request_section
from autotune.report.pages.conditions import over_run
from autotune.report.pages.html_page import download_table, facts, page, table
from autotune.report.pages.kernel_history import DEFAULT, History, histories, step_history
from autotune.report.plots import (
    Axis,
    Bar,
    Ratio,
    Series,
    Small,
    bars,
    charts,
    intervals,
    many,
    stacked,
)
from autotune.times import time_text
from autotune.workloads import short_name

_COLUMNS = (
    "no.", "kernel", "role", "count", "untuned", "tuned", "speed-up", "95 %", "GFLOP/s", "moving data",
    "trials", "failed", "largest error", "formulation", "schedule", "in the pool",
)  # fmt: skip
_NUMBERS = (
    "no.", "count", "untuned", "tuned", "speed-up", "95 %", "GFLOP/s", "moving data", "trials", "failed",
    "largest error", "in the pool",
)  # fmt: skip
_NARROW = ("no.", "kernel", "untuned", "tuned", "speed-up")
_CSV_COLUMNS = (
    *_COLUMNS[:4], "untuned ms", "tuned ms", "speed-up", "speed-up from", "speed-up to", "GFLOP/s",
    "moving data ms", *_COLUMNS[10:],
)  # fmt: skip
_LONGEST_MESSAGE = 160


def kernels_page(
    about: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    result: Result,
    content: Mapping[str, Any] | None,
    unfinished: str = "",
) -> str:
    """Returns a page for a run.

    Args:
        about: Content of `run.json`.
        events: Its events.
        result: Its result, or the output of `kernels_so_far`.
        content: Content of `result.json`; None if there is none.
        unfinished: Notice that it has not ended; empty if it has.
    """
    found = histories(events)
    counts = {task.name: task.count for task in result.tasks}
    steps = step_history(found, counts)
    numbered = list(enumerate(result.tasks, start=1))
    sections = [
        ("A training step", _step(result, content or {})),
        ("Search history of the step", _step_plot(steps, result.trials)),
        ("Search history of each kernel", _each(numbered, found, result.trials)),
        ("Speed-ups", _speedups(numbered)),
        ("Time of a step by role", _by_role(result)),
        ("Time of the tuned step by role and operator", _shares(result)),
        ("Every kernel", _kernels(numbered)),
        ("Trials that failed", _failures(events)),
        *_devices(events),
        *over_run(events),
        request_section(about, content, _data(numbered, found)),
    ]
    title = f"Kernels of {about['request'].get('workload')} for {result.target}"
    batch = about["request"].get("batch")
    stand_in = (
        f"STAND-IN: measured on {device_name(result.device)}, not on a device of the target {result.target}"
        if result.stand_in
        else ""
    )
    return page(title + (f", batch {batch}" if batch else ""), [unfinished, stand_in], sections)


def name_of(number: int, task: TaskResult) -> str:
    """Returns a kernel's name in plots: its number in the table, operator and role."""
    return f"{number} {task.operator} {task.role}"


def role_times(result: Result, *, tuned: bool) -> dict[str, float]:
    """Returns milliseconds of a step by role. Kernels without a time are left out."""
    found: dict[str, float] = {}
    for task in result.tasks:
        ms = task.tuned_ms if tuned else task.default_ms
        found[task.role] = found.get(task.role, 0.0) + task.count * (ms or 0.0)
    return found


def step_lines(steps: Sequence[tuple[int, float]], last: int, name: str) -> Series:
    """Returns a step's best time so far as a stepped line, in milliseconds."""
    points = [(number, 1e3 * seconds) for number, seconds in steps]
    return Series.best_so_far(name, points, last, higher=False)


def _step(result: Result, content: Mapping[str, Any]) -> str:
    before, after = result.step_ms(tuned=False), result.step_ms(tuned=True)
    faster = result.step_speedup()
    ends = f", {faster.ends[0]:.3g}-{faster.ends[1]:.3g}" if faster and faster.ends else ""
    ratio = f" ({faster.ratio:.3g}x as fast as untuned{ends})" if faster else ""
    failed = sum(sum(task.failures.values()) for task in result.tasks)
    html = facts(
        [
            ("untuned, predicted", _ms(before)),
            ("tuned, predicted", _ms(after) + ratio if after else "-"),
            *_measured(content.get("measured_step")),
            (
                "kernels",
                f"{len(result.tasks)} distinct, {sum(t.count for t in result.tasks)} calls",
            ),
            ("trials", f"{result.trials}, of which {failed} failed"),
            ("wall time", f"{result.wall_s:.0f} s"),
            ("measured on", device_name(result.device)),
        ]
    )
    note = f"A predicted step is the sum of count x kernel time; {result.untuned_text()}."
    html += f"<p>{escape(note)}</p>"
    untimed = [task.name for task in result.tasks if task.tuned_ms is None]
    if untimed:
        html += f"<p>Without a valid time: {escape(', '.join(untimed))}</p>"
    for drift in result.drifts:
        html += f"<p>Drift: {escape(str(drift))}; the final benchmark compares trials from both sides.</p>"
    for task in result.tasks:
        if task.doubt:
            doubt = f"speed-ups are valid, absolute times may be wrong: {task.doubt}"
            html += f"<p>{escape(task.name)}: {escape(doubt)}</p>"
    return html


def _measured(step: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Returns rows for a step as measured on this machine: untuned, tuned and in PyTorch."""
    if step is None:
        return [("measured", "not; the step is predicted only")]
    rows = []
    for side, name in (("untuned", "untuned"), ("tuned", "tuned"), ("pytorch", "PyTorch")):
        one, ratio = step[side], ""
        if one is None:
            rows.append((f"{name}, measured", f"not: {step['left_out'].get(side, '')}"))
            continue
        if side != "tuned":
            ends = f", {one['ci'][0]:.3g}-{one['ci'][1]:.3g}" if one["ci"] else ""
            ratio = f" (tuned is {one['tuned_is_faster']:.3g}x as fast{ends})"
        rows.append((f"{name}, measured", _ms(one["ms"]) + ratio))
    conditions = (
        f"{step['threads']} threads, {step['blocks']} interleaved blocks; intervals of 95 %"
    )
    return [*rows, ("measured with", conditions)]


def _step_plot(steps: Sequence[tuple[int, float]], trials: int) -> str:
    if not steps:
        return "<p>Not every kernel has a time.</p>"
    line = step_lines(steps, trials, "the best of each kernel by then")
    x = Axis("trials", 0.0, max(trials, 1))
    y = Axis.over("ms a step", line.ys, logarithmic=True)
    return charts.lines("Time of a step with the best kernels so far", x, y, [line])


def _each(
    numbered: Sequence[tuple[int, TaskResult]], found: Mapping[str, History], trials: int
) -> str:
    plots, highest, unknown = [], 1.0, 0
    for number, task in numbered:
        history = found.get(task.name)
        if history is None or not history.trials or not (best := history.best()):
            continue
        if history.default_s is None:
            unknown += 1
            continue
        ratios = [history.default_s / seconds for _, seconds in best]
        highest = max(highest, ratios[-1])
        title = f"{name_of(number, task)}, {task.spec}: {ratios[-1]:.2f} times in {len(history.trials)} trials"
        plots.append(
            Small(
                name_of(number, task),
                f"{ratios[-1]:.3g}x, trials: {len(history.trials)}",
                [at for at, _ in best],
                ratios,
                title,
            )
        )
    left_out = (
        f"{unknown} of {len(numbered)} kernels, whose untuned default has no time, are left out"
    )
    without = f"<p>{left_out}.</p>" if unknown else ""
    if not plots:
        return without or "<p>No candidate was tried.</p>"
    x = Axis("trials of the run", 0.0, max(trials, 1))
    y = Axis("speed-up over the untuned default", 1.0 / 1.1, highest * 1.1, True)
    note = "<p>By the single measurements of the search; the final benchmark decides.</p>"
    return many("Best so far of each kernel", x, y, plots) + note + without


def _speedups(numbered: Sequence[tuple[int, TaskResult]]) -> str:
    shown = [(n, t) for n, t in numbered if t.speedup is not None and t.digest not in ("", DEFAULT)]
    shown.sort(key=lambda one: -one[1].saved_ms)
    kept = sum(task.digest == DEFAULT for _, task in numbered)
    note = f"<p>{kept} of {len(numbered)} kernels keep the untuned default.</p>" if kept else ""
    if not shown:
        return note or "<p>None is known.</p>"
    rows = [
        Ratio(
            name_of(number, task),
            task.speedup or 1.0,
            task.ci,
            f"{name_of(number, task)}: {task.speedup:.3g} times"
            + (f" ({task.ci[0]:.3g} to {task.ci[1]:.3g})." if task.ci else "."),
        )
        for number, task in shown
    ]
    what = "untuned / tuned time" + (", 95 % interval" if any(t.ci for _, t in shown) else "")
    order = "<p>Those that save most of a step's time come first.</p>"
    return intervals("Speed-up of each kernel", what, rows) + order + note


def _by_role(result: Result) -> str:
    before, after = (role_times(result, tuned=tuned) for tuned in (False, True))
    names = sorted(before, key=lambda role: -before[role])
    rows = [
        (word, [times[name] for name in names])
        for word, times in (("untuned", before), ("tuned", after))
    ]
    return stacked("Time of a step by role, untuned and tuned", "ms a step", names, rows)


def _shares(result: Result) -> str:
    shares = step_shares(result)
    total = sum(share.ms for share in shares) or 1.0
    rows = [
        Bar(
            f"{share.operator} {share.role}",
            share.ms,
            title=f"{share.operator} {share.role}: {_ms(share.ms)}, {share.ms / total:.1%}",
        )
        for share in shares
    ]
    return bars("Time of the tuned step by role and operator", "ms a step", rows)


def _kernels(numbered: Sequence[tuple[int, TaskResult]]) -> str:
    rows = []
    for number, task in sorted(numbered, key=lambda one: -one[1].saved_ms):
        kept = task.digest == DEFAULT
        rows.append(
            (
                str(number), short_name(task.spec), task.role, str(task.count), _ms(task.default_ms),
                _ms(task.tuned_ms), "kept" if kept else _figure(task.speedup), "" if kept else _ends(task.ci),
                _figure(task.gflops), _ms(task.movement_ms), str(task.trials),
                str(sum(task.failures.values())), _figure(task.max_rel_error), task.formulation, task.digest,
                str(len(task.pool)),
            )
        )  # fmt: skip
    note = "<p>Those that save most of a step's time come first. kernels.csv has their whole names.</p>"
    return note + table(_COLUMNS, rows, _NUMBERS, _NARROW)


def _data(numbered: Sequence[tuple[int, TaskResult]], found: Mapping[str, History]) -> str:
    """Returns kernels, pools and trials as tables of raw values."""
    kernels = [
        (
            number, task.spec, task.role, task.count, task.default_ms, task.tuned_ms, task.speedup,
            *(task.ci or (None, None)), task.gflops, task.movement_ms, task.trials, sum(task.failures.values()),
            task.max_rel_error, task.formulation, task.digest, len(task.pool),
        )
        for number, task in numbered
    ]  # fmt: skip
    trials = sorted(
        (
            (
                trial.number, name, trial.event.get("serial") or trial.event.get("device"),
                trial.event.get("formulation"), trial.event.get("digest"), trial.event.get("status"),
                None if trial.seconds is None else 1e3 * trial.seconds, trial.event.get("message"),
            )
            for name, history in found.items()
            for trial in history.trials
        ),
        key=lambda row: row[0],
    )  # fmt: skip
    pools = [
        (task.name, one.digest, one.formulation, one.ms)
        for _, task in numbered
        for one in task.pool
    ]
    parts = (
        download_table("kernels.csv", _CSV_COLUMNS, kernels),
        download_table(
            "trials.csv",
            ("trial", "kernel", "device", "formulation", "schedule", "status", "ms", "message"),
            trials,
        ),
        download_table("pools.csv", ("kernel", "schedule", "formulation", "ms"), pools)
        if pools
        else "",
    )
    return "".join(parts)


def _failures(events: Sequence[Mapping[str, Any]]) -> str:
    failed = [e for e in events if e["event"] in (DEFAULT, "trial") and e.get("status") != "ok"]
    if not failed:
        return "<p>None.</p>"
    counts = Counter(event["status"] for event in failed)
    rows = []
    for status, count in counts.most_common():
        message = next(e.get("message") or "" for e in failed if e["status"] == status)
        first = (message.strip().splitlines() or [""])[0]
        rows.append((status.replace("_", " "), str(count), first[:_LONGEST_MESSAGE]))
    return table(("what", "trials", "the first said"), rows, ("trials",))


def _devices(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Describes how much each device measured, if there are several."""
    trials = [e for e in events if e["event"] == "trial"]
    names = list(dict.fromkeys(str(e.get("serial") or e.get("device")) for e in trials))
    if len(names) < 2:
        return []
    rows = []
    for name in names:
        own = [e for e in trials if str(e.get("serial") or e.get("device")) == name]
        rejected = sum(len(e.get("rejected") or ()) for e in own)
        valid = sum(e["status"] == "ok" for e in own)
        rows.append((name, str(len(own)), str(len(own) - valid), str(rejected)))
    columns = ("device", "trials", "failed", "measured again")
    return [("Devices", table(columns, rows, columns[1:]))]


def _ms(value: float | None) -> str:
    return time_text(None if value is None else value / 1e3)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ends(ends: Sequence[float] | None) -> str:
    return f"{ends[0]:.3g} to {ends[1]:.3g}" if ends else ""
