"""`autotune records`: databases of measurements of runs, to merge, compare and ship."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import completion, run_path, tuning_words
from autotune.cli.shared import (
    Column,
    name_of,
    number,
    roles,
    speedup_text,
    time_text,
    with_wide,
    write_next,
    write_table,
    write_text,
)
from autotune.errors import counted
from autotune.waits import waiting

if TYPE_CHECKING:
    from autotune.jobs.provenance import Work
    from autotune.records import Database, TaskDifference

STORE = Path("records")
_READ = "records to be read"

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Place = "a database, a run, or a folder of them"


def holds_records(run: Path, *_: object) -> None:
    """Refuses a run whose records cannot be read."""
    _whole(run)


@with_wide
@waiting(_READ)
def list_databases(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="[DIR]",
            help="A store, a folder of runs, or one of either.",
        ),
    ] = STORE,
    json: Json = False,
) -> None:
    """Lists the databases and runs in a folder: what was measured, on which device, how fast steps are.

    \b
    Examples:
      autotune records list
      autotune records list logs --json
    """
    from autotune.cli.shared import write_json
    from autotune.compiler.run import databases_at

    found = [_summary(path, database) for path, database in databases_at(folder)]
    if json:
        write_json({"databases": found})
        write_next("records", "show", found[0]["path"])
        return
    write_table(
        (
            Column("records", least=24),
            Column("device", least=18),
            Column("driver", rank=5, least=12),
            Column("TVM", rank=6),
            Column("target", rank=2),
            number("runs", rank=4),
            number("kernels"),
            number("schedules", rank=3),
            number("trials", rank=1),
            Column("best step", least=26, named=True),
        ),
        [
            (
                Path(one["path"]).name,
                "; ".join(_named(i) for i in one["identities"]),
                "; ".join(dict.fromkeys(i["driver"] or "-" for i in one["identities"])),
                "; ".join(dict.fromkeys(i["tvm"] for i in one["identities"])),
                "; ".join(dict.fromkeys(i["target"] for i in one["identities"])),
                str(len(one["sources"])),
                str(one["tasks"]),
                str(one["schedules"]),
                str(one["trials"]),
                "; ".join(
                    f"{step['workload']}: {time_text(step['ms'] / 1e3)}"
                    + (f" ({step['cores']})" if len({s["cores"] for s in one["steps"]}) > 1 else "")
                    for step in one["steps"]
                    if step["ms"]
                ),
            )
            for one in found
        ],
    )
    write_next("records", "show", found[0]["path"])


@with_wide
@waiting(_READ)
def show(
    database: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="DATABASE",
            help=f"The records: {Place}.",
        ),
    ],
    json: Json = False,
) -> None:
    """Shows the kernels of a database with their best times, and the runs that measured them.

    \b
    Examples:
      autotune records show records/sm8150-0a1b2c3d.records.gz
      autotune records show logs/20260102T030405Z-arm-cpu-lenet --json
    """
    from autotune.cli.shared import write_json
    from autotune.workloads import short_name

    found = _whole(database)
    rows = _tasks(found)
    if json:
        write_json({**_summary(database, found), "kernels": rows}, _work(database, found))
        write_next(*tuning_words(found, database, [database]))
        return
    one_device = len({row["device"] for row in rows}) == 1
    write_table(
        (
            number("no."),
            name_of("kernel"),
            Column("kernel", whole=True),
            roles(),
            Column("cores", least=14, rank=9, differing=True),
            number("untuned"),
            number("best"),
            number("speed-up", rank=1),
            number("trials", rank=2),
            number("schedules", rank=3),
            Column("formulation", rank=4),
        ),
        [
            (
                str(place),
                short_name(row["spec"]),
                row["spec"],
                row["role"],
                row["cores"] if one_device else f"{row['device']}, {row['cores']}",
                _ms(row["default_ms"]),
                _ms(row["best_ms"]),
                speedup_text(row["default_ms"] / row["best_ms"] if row["default_ms"] else None),
                str(row["trials"]),
                str(row["schedules"]),
                row["formulation"],
            )
            for place, row in sorted(enumerate(rows, start=1), key=lambda one: -_gain_ms(one[1]))
        ],
    )
    for source in found.sources.values():
        about = source.about
        write_text(
            f"{source.id}: {about.run}, {about.workload}, "
            f"{'' if about.batch is None else f'batch {about.batch}, '}"
            f"{counted(source.trials, 'trial')}, "
            f"{source.identity}, {source.cores}"
        )
    write_next(*tuning_words(found, database, [database]))


@waiting(_READ)
def merge(
    databases: Annotated[
        list[Path],
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="A B...",
            help=f"The records: each {Place}.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder that the database is written to.")],
    mixed: Annotated[
        bool,
        typer.Option(
            help="Allow records of different devices, drivers, TVM versions or targets, and of "
            "stand-ins beside real devices."
        ),
    ] = False,
    best: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep only the N fastest schedules of each kernel and formulation on each "
            "device. [default: all]",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKLOAD",
            help="Leave out the runs of this model, as `records list` names it. May be repeated.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Merges records into one database, completely or not at all; duplicates are kept once.

    Each time keeps its run, device, driver and versions. The file is named after the device.

    \b
    Examples:
      autotune records merge logs/*-arm-cpu-big-* --out shipped
      autotune records merge mine.records.gz theirs.records.gz --out shipped --json
      autotune records merge logs --best 8 --out shipped
      autotune records merge shipped --without googlenet --out others
    """
    from autotune.records import joined, place_for, write_database

    result = joined(
        [_whole(path) for path in databases], mixed=mixed, without=without or (), best=best
    )
    path = place_for(result.database, out, databases)
    write_database(path, result.database)
    counts = ", ".join(
        [
            f"{counted(result.duplicates, 'duplicate')} removed",
            *([f"{result.others} of {' and '.join(without)} left out"] if without else []),
            *([f"{result.slower} slower ones left out"] if result.slower else []),
        ]
    )
    whole = result.database
    _tell_written([(path, whole, len(whole.schedules))], databases, counts, json)


@with_wide
@waiting(_READ)
def diff(
    a: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="A",
            help=f"The records: {Place}.",
        ),
    ],
    b: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="B",
            help=f"The records: {Place}.",
        ),
    ],
    json: Json = False,
) -> None:
    """Compares two databases, kernel by kernel: which has the faster schedule, and what only one has.

    \b
    Example:
      autotune records diff records/sm8150-0a1b2c3d.records.gz logs/20260102T030405Z-arm-cpu-lenet
    """
    from autotune.cli.shared import write_json
    from autotune.records import Database, difference

    sides = (_whole(a), _whole(b))
    parts = [side.parts() for side in sides]
    comparable = parts[0].keys() == parts[1].keys()
    rows = [
        (key[1], row)
        for key in sorted({*parts[0], *parts[1]})
        for row in difference(*(part.get(key, Database()) for part in parts))
    ]
    if json:
        write_json(
            {
                "a": str(a),
                "b": str(b),
                "same_device": comparable,
                "kernels": [
                    {**asdict(row), "cores": cores, "better": row.better} for cores, row in rows
                ],
            }
        )
        _tell_merge(a, b, comparable)
        return
    _show_difference(sides, rows, comparable)
    _tell_merge(a, b, comparable)


def _show_difference(
    sides: Sequence[Database], rows: Sequence[tuple[str, TaskDifference]], comparable: bool
) -> None:
    """Prints a row for each kernel, with its cores, and which side is better."""
    from autotune.workloads import short_name

    kernels = {
        name: one for side in sides for s in side.sources.values() for name, one in s.tasks.items()
    }
    write_table(
        (
            name_of("kernel"),
            Column("kernel", whole=True),
            roles(),
            Column("cores", least=14, rank=9, differing=True),
            number("A"),
            number("B"),
            Column("better"),
            number("A alone", rank=1),
            number("B alone", rank=2),
        ),
        [
            (
                short_name(kernels[row.task].spec),
                kernels[row.task].spec,
                kernels[row.task].role,
                cores,
                *map(time_text, row.best_s),
                {"a": "A", "b": "B"}.get(row.better or "", "-"),
                *map(str, row.alone),
            )
            for cores, row in rows
        ],
    )
    both = [row for _, row in rows if None not in row.best_s]
    if not both:
        print("no kernel is in both: neither is better")
    for name, side in (("A", "a"), ("B", "b")) if both else ():
        print(f"{name} is better in {sum(row.better == side for row in both)} of {len(both)}")
    if not comparable:
        print(
            "A and B have databases of different devices, cores or versions; only common ones are compared"
        )


def _tell_merge(a: Path, b: Path, comparable: bool) -> None:
    """Prints the command that joins two databases, or shows one that was compared with itself."""
    if a.resolve() == b.resolve():
        write_next("records", "show", a)
        return
    names = chain(["merged"], (f"merged-{number}" for number in count(2)))
    out = next(name for name in names if not Path(name).exists())
    write_next("records", "merge", a, b, *(() if comparable else ("--mixed",)), "--out", out)


@waiting(_READ)
def pull(
    folder: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", ended=False, check=holds_records),
            autocompletion=completion.runs,
            metavar="DIR",
            help=f"Where records come from: {Place}.",
        ),
    ],
    store: Annotated[Path, typer.Option(metavar="DIR", help="The store.")] = STORE,
    json: Json = False,
) -> None:
    """Copies records into the local store, which has one database per device, driver, TVM version and target.

    `autotune kernels --records DIR` starts from such a store.

    \b
    Examples:
      autotune records pull ~/Downloads/shipped
      autotune records pull logs --store records
    """
    from autotune.compiler.run import databases_at
    from autotune.records import pulled

    written = pulled([database for _, database in databases_at(folder)], store)
    _tell_written(written, [folder], "", json)


def _work(path: Path, database: Database) -> Work:
    """Returns what records are of: a run, or the one model that all of their runs have."""
    from autotune.jobs.provenance import Work
    from autotune.records import is_run, read_json

    if is_run(path):
        return Work.of_run(path, read_json(path / "run.json"))
    of = {(one.about.workload, one.about.batch) for one in database.sources.values()}
    model, batch = of.pop() if len(of) == 1 else (None, None)
    return Work(None, None if batch is None else model, batch)


def _whole(path: Path) -> Database:
    from autotune.compiler.run import databases_at
    from autotune.records import merged

    return merged(database for _, database in databases_at(path))


def _summary(path: Path, database: Database) -> dict[str, Any]:
    steps: dict[tuple[str, str, str], float | None] = {}
    for (identity, cores), part in database.parts().items():
        best = {task: rows[0].best_s for task, rows in part.tasks().items()}
        for source in part.sources.values():
            times = [
                (task.count, min((s for s in (best.get(name), task.default_s) if s), default=None))
                for name, task in source.tasks.items()
            ]
            about = source.about
            name = f"{about.workload}{'' if about.batch is None else f' b{about.batch}'}"
            known = (
                None if any(s is None for _, s in times) else sum(n * (s or 0) for n, s in times)
            )
            key = (identity.device, cores, name)
            both = [seconds for seconds in (known, steps.get(key)) if seconds is not None]
            steps[key] = min(both, default=None)
    return {
        "path": str(path),
        "identities": [asdict(one) for one in database.identities],
        "sources": [
            {
                "id": s.id,
                "cores": s.cores,
                "trials": s.trials,
                **s.about.to_json(),
                "device": s.identity.device,
            }
            for s in database.sources.values()
        ],
        "tasks": len(database.tasks()),
        "schedules": len(database.schedules),
        "trials": database.trials,
        "steps": [
            {
                "workload": name,
                "device": device,
                "cores": cores,
                "ms": None if seconds is None else 1e3 * seconds,
            }
            for (device, cores, name), seconds in steps.items()
        ],
    }


def _tasks(database: Database) -> list[dict[str, Any]]:
    rows = []
    for (identity, cores), part in database.parts().items():
        for name, schedules in part.tasks().items():
            searched = part.searched(name)
            defaults = [one.default_s for one in searched if one.default_s is not None]
            rows.append(
                {
                    "name": name,
                    "spec": searched[0].spec,
                    "role": searched[0].role,
                    "device": identity.device,
                    "cores": cores,
                    "schedules": len(schedules),
                    "trials": sum(one.trials for one in searched),
                    "default_ms": 1e3 * min(defaults) if defaults else None,
                    "best_ms": 1e3 * schedules[0].best_s,
                    "formulation": schedules[0].formulation,
                    "digest": schedules[0].digest,
                    "sources": sorted({key for one in schedules for key in one.seconds}),
                }
            )
    return rows


def _tell_written(
    written: Sequence[tuple[Path, Database, int]],
    measured: Sequence[Path],
    note: str,
    json: bool,
) -> None:
    """Prints the databases that were written, and the next command.

    Args:
        written: Path, content and number of new schedules of each.
        measured: Paths that the records came from.
        note: More to say of each; may be empty.
        json: Whether to print JSON.
    """
    from autotune.cli.shared import write_json

    if json:
        write_json(
            {
                "databases": [
                    {**_summary(path, database), "added": added}
                    for path, database, added in written
                ]
            }
        )
        _tell_next(written, measured)
        return
    for path, database, added in written:
        print(
            f"{path}: {counted(len(database.schedules), 'schedule')} of "
            f"{counted(len(database.tasks()), 'kernel')} from {counted(len(database.sources), 'run')}, "
            f"{added} of them new{f'; {note}' if note else ''}"
        )
    _tell_next(written, measured)


def _tell_next(written: Sequence[tuple[Path, Database, int]], measured: Sequence[Path]) -> None:
    """Prints the command that starts a run from the first of the written databases."""
    for path, database, _ in written[:1]:
        write_next(*tuning_words(database, path, measured))


def _named(identity: dict[str, Any]) -> str:
    return f"{identity['device']}{' (stand-in)' if identity['stand_in'] else ''}"


def _ms(value: float | None) -> str:
    return time_text(None if value is None else value / 1e3)


def _gain_ms(row: dict[str, Any]) -> float:
    """Returns what a kernel's best schedule saves over its untuned time; kernels without that time come last."""
    return -math.inf if row["default_ms"] is None else row["default_ms"] - row["best_ms"]
