"""Reads runs as databases of records, and finds databases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.compiler.target import TuneRequest
from autotune.errors import UsageError
from autotune.measurement import median
from autotune.reading import reading, typed
from autotune.records import (
    SUFFIX,
    About,
    Database,
    Identity,
    Run,
    Schedule,
    SearchedTask,
    Source,
    read_database,
    read_run,
)


def identity_of(request: TuneRequest, device: Mapping[str, Any], tvm: str) -> tuple[Identity, str]:
    """Returns the identity that a run's times belong to, and the cores.

    Args:
        request: The run's request.
        device: The device, as in `run.json`.
        tvm: Version of TVM.
    """
    name, cluster = str(device["name"]), request.cores.cluster if request.cores else "all"
    if request.fleet is not None:
        name = name.removesuffix(f"-{cluster}")  # The cluster's servers have such a key.
    target, details = request.target, device.get("details") or {}
    threads = details.get("threads") or dict(target.tvm).get("num-cores") or details.get("cores")
    identity = Identity(
        name,
        str(device["kind"]),
        str(device.get("driver") or ""),
        tvm,
        target.processor,
        bool(device.get("stand_in")),
    )
    return identity, f"{cluster}, {threads} threads" if threads else cluster


def database_of_run(run: Run) -> Database:
    """Returns the valid trials of a kernel run as a database, whether the run is finished or not.

    Raises:
        RecordError: Its records are damaged.
    """
    request = TuneRequest.of_run(run)
    with reading(run.path):
        return _of_run(run, request)


def _of_run(run: Run, request: TuneRequest) -> Database:
    began = run.events[0]["time"] if run.events else 0.0
    text = json.dumps([{**run.about, "schema_version": 1}, began], sort_keys=True)
    source = hashlib.sha256(text.encode()).hexdigest()[:16]
    # Times of the final benchmark, which is interleaved, replace those of the search.
    finished = () if run.result is None else run.kernel_result().tasks
    settled = {(task.name, one.digest): one.ms / 1e3 for task in finished for one in task.pool}
    trials: dict[str, int] = {}
    curves: dict[str, list[tuple[int, float]]] = {}
    schedules = []
    for event in run.trials():
        task, digest = event["task"], event["digest"]
        trials[task] = trials.get(task, 0) + 1
        if event["status"] != "ok":
            continue
        seconds = median(event["samples_s"])
        curve = curves.setdefault(task, [])
        if not curve or seconds < curve[-1][1]:
            curve.append((trials[task], seconds))
        measured = {source: settled.get((task, digest), seconds)}
        schedules.append(Schedule.of(task, event["formulation"], digest, event["trace"], measured))
    defaults = {
        event["task"]: median(event["samples_s"])
        for event in run.events
        if event["event"] == "default" and event["status"] == "ok"
    }
    defaults |= {
        task.name: task.default_ms / 1e3
        for task in finished
        if task.name in defaults and task.default_ms is not None
    }
    tasks = {
        (name := task.kernel.name): SearchedTask(
            task.kernel.spec,
            task.kernel.role,
            task.count,
            defaults.get(name),
            trials.get(name, 0),
            tuple(curves.get(name, ())),
        )
        for task in request.tasks
    }
    about = {
        "run": run.path.resolve().name,
        "began": began,
        "workload": request.workload,
        "batch": request.batch,
        "step": run.about.get("step") or {},
        "target": request.target.name,
        "seed": request.seed,
        "versions": run.about["versions"],
        "git": run.about.get("git", ""),
        "had_records": bool(request.records),
        "knew": run.knew(),
    }
    identity, cores = identity_of(request, run.about["device"], run.about["versions"]["apache-tvm"])
    return Database.of(
        [Source(source, identity, cores, typed(About, about), sum(trials.values()), tasks)],
        schedules,
    )


def databases_at(path: Path) -> list[tuple[Path, Database]]:
    """Returns the databases at a path: a database file, a run, or a folder of both.

    In folders, runs of commands other than `autotune kernels` are skipped.

    Raises:
        UsageError: There are none.
        RecordError: One is damaged.
    """
    if path.exists() and not path.is_dir():
        return [(path, read_database(path))]
    if (path / "run.json").is_file():
        return [(path, database_of_run(read_run(path)))]
    found = [(file, read_database(file)) for file in sorted(path.glob(f"*{SUFFIX}"))]
    for about in sorted(path.glob("*/run.json")):
        run = read_run(about.parent)
        if (run.about.get("request") or {}).get("kind") == "kernels":
            found.append((about.parent, database_of_run(run)))
    if not found:
        raise UsageError(
            f"no records at {path}",
            hint=f"give a run of `autotune kernels`, a file *{SUFFIX}, or a folder that holds some",
        )
    return found
