"""Databases of measured schedules: the content of shared records, and how they are merged.

A database is a set of sources (runs) and a set of schedules with the time that each source measured. Merging is the
union of both. So neither the order nor the number of merges matters.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from autotune.errors import UsageError
from autotune.reading import Count, Name, Number, Seconds, Unreadable, typed
from autotune.records.trace_grammar import check_kinds

Trials = Annotated[int, Field(strict=True, ge=0, le=10**8)]
"""Trials of a run; more would take a year at three a second."""


@dataclass(frozen=True, order=True)
class Identity:
    """The identity of a database's times. They are used only in runs with an equal identity and equal cores.

    Attributes:
        device: The device's model, as runs name it.
        kind: `cpu`, `opencl`, `qemu-user`, `rpc-cpu`, `rpc-opencl` or `model`.
        driver: Driver, or the device's emulator; empty for a processor.
        tvm: Version of TVM.
        target: Family and LLVM triple of the code.
        stand_in: Whether the device is only a stand-in for the target's.
    """

    device: Name
    kind: Name
    driver: Name
    tvm: Name
    target: Name
    stand_in: bool

    def __str__(self) -> str:
        parts = (self.device, self.driver, f"TVM {self.tvm}", self.target)
        return ", ".join(filter(None, parts)) + (" (a stand-in)" if self.stand_in else "")


@dataclass(frozen=True)
class SearchedTask:
    """The search for one kernel in one run.

    Attributes:
        spec: Its shape, in the form that `--op` takes.
        role: Its role.
        count: Times it runs in a step of that run's model.
        default_s: Seconds of the untuned default; None if that failed.
        trials: Trials spent on it.
        curve: Progress of the best: (trials, seconds) at each improvement.

    Raises:
        Unreadable: The curve is of no search with so many trials.
    """

    spec: Name
    role: Name
    count: Count
    default_s: Seconds | None
    trials: Trials
    curve: tuple[tuple[Count, Seconds], ...]

    def __post_init__(self) -> None:
        if any(a[0] >= b[0] or a[1] <= b[1] for a, b in pairwise(self.curve)) or any(
            not 0 < trials <= self.trials for trials, _ in self.curve
        ):
            raise Unreadable(
                "a curve whose trials do not rise to those spent, or whose times do not fall"
            )

    def trials_until(self, seconds: float) -> int:
        """Returns the trials until the best reached `seconds`; all of them if it never did."""
        return next((trials for trials, best in self.curve if best <= seconds), self.trials)


@dataclass(frozen=True)
class Form:
    """Options of a run's step beside model and batch, as its request has them; None if not given."""

    classes: Count | None = None
    optimizer: Name | None = None
    input_shape: Name | None = None
    micro_batch: Count | None = None
    recompute: Count | None = None
    layout: Name | None = None


@dataclass(frozen=True)
class About:
    """What people want to know about a run. Older records lack the last three.

    Attributes:
        run: Name of its folder.
        began: When it began, in seconds since the epoch.
        workload: Its model, or its operator.
        batch: Samples of a step; None for an operator.
        seed: Its seed; None if that is not known.
        versions: Versions of autotune, Python and packages.
        git: Revision of autotune; empty if that is not known.
        had_records: Whether the run itself began with records.
        knew: Number of its kernels for which these records had schedules.
        step: Other options of its step; None if that is not known.
        target: Name of its target.
    """

    run: Name
    began: Number
    workload: Name
    batch: Count | None
    seed: Count | None = None
    versions: dict[Name, Name] = field(default_factory=dict)
    git: Name = ""
    had_records: bool = False
    knew: Count | None = None
    step: Form | None = None
    target: Name | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, without what is not known."""
        step = {} if self.step is None else {"step": _known(self.step)}
        return _known(self) | {"batch": self.batch} | step


@dataclass(frozen=True)
class Source:
    """The run that measurements come from.

    Attributes:
        id: Identifier that is the same for all copies of the run.
        identity: The identity of its times.
        cores: The cores that it measured on, as a text.
        about: What people want to know about the run.
        trials: Its trials.
        tasks: Its kernels, by name.

    Raises:
        Unreadable: A kernel has more trials than the run.
    """

    id: Name
    identity: Identity
    cores: Name
    about: About
    trials: Trials
    tasks: Mapping[Name, SearchedTask]

    def __post_init__(self) -> None:
        if any(task.trials > self.trials for task in self.tasks.values()):
            raise Unreadable("a kernel with more trials than its run")

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "identity": asdict(self.identity),
            "cores": self.cores,
            "about": self.about.to_json(),
            "trials": self.trials,
            "tasks": {name: asdict(self.tasks[name]) for name in sorted(self.tasks)},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Source:
        """Reads the output of `to_json`.

        Raises:
            Unreadable: The content is something else.
        """
        return typed(cls, content)

    def fuller(self, other: Source) -> Source:
        """Returns the run with the content of both copies, because resumed runs grow.

        Of a kernel that both have, the search with more trials is kept.
        """
        whole = max(
            self, other, key=lambda one: (one.trials, _canonical(replace(one, tasks={}).to_json()))
        )
        tasks = dict(self.tasks)
        for name, task in other.tasks.items():
            tasks[name] = max(
                task, tasks.get(name, task), key=lambda one: (one.trials, _canonical(asdict(one)))
            )
        return replace(whole, tasks=tasks)


@dataclass(frozen=True)
class _Written:
    """A schedule as a file stores it."""

    task: Name
    formulation: Name
    digest: Name
    trace: Any
    seconds: dict[Name, Seconds]


@dataclass(frozen=True)
class Schedule:
    """A schedule of a kernel, with its times.

    Attributes:
        task: The kernel's name.
        formulation: Formulation of the kernel.
        digest: Identity of the scheduled program: its structural hash, with task and formulation.
        trace_json: The schedule as TVM's trace, a JSON text. Objects would take ten times the memory.
        seconds: Time measured by each source, by its id.
    """

    task: str
    formulation: str
    digest: str
    trace_json: str
    seconds: Mapping[str, Seconds]

    @classmethod
    def of(
        cls, task: str, formulation: str, digest: str, trace: Any, seconds: Mapping[str, float]
    ) -> Schedule:
        """Returns a schedule whose trace is plain JSON data."""
        return cls(task, formulation, digest, _canonical(trace), seconds)

    @classmethod
    def from_json(cls, content: Any) -> Schedule:
        """Reads the output of `to_json`.

        Raises:
            Unreadable: The content is something else.
            RecordError: Its trace contains something that our searches never make.
        """
        found = typed(_Written, content)
        if not found.seconds:
            raise Unreadable(f"{found.task[:80]}: a schedule without a time")
        check_kinds(found.trace)
        return cls.of(found.task, found.formulation, found.digest, found.trace, found.seconds)

    @property
    def trace(self) -> Any:
        """The schedule as TVM's trace in plain JSON data."""
        return json.loads(self.trace_json)

    @property
    def best_s(self) -> float:
        """The shortest of its times."""
        return min(self.seconds.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "formulation": self.formulation,
            "digest": self.digest,
            "trace": self.trace,
            "seconds": dict(sorted(self.seconds.items())),
        }

    def with_times_of(self, other: Schedule) -> Schedule:
        """Returns the schedule with the times of both. If both have a time from one source, the shorter is kept."""
        seconds = dict(self.seconds)
        for source, value in other.seconds.items():
            seconds[source] = min(value, seconds.get(source, value))
        return replace(self, seconds=seconds, trace_json=min(self.trace_json, other.trace_json))


@dataclass(frozen=True)
class Database:
    """Measured schedules with their sources.

    Attributes:
        sources: Sources by id.
        schedules: Schedules by task, formulation and digest.
    """

    sources: Mapping[str, Source] = field(default_factory=dict)
    schedules: Mapping[tuple[str, str, str], Schedule] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Iterable[Source], schedules: Iterable[Schedule]) -> Database:
        """Returns a database of all given sources and schedules. Duplicates are merged."""
        by_id: dict[str, Source] = {}
        for source in sources:
            known = by_id.get(source.id)
            by_id[source.id] = source if known is None else known.fuller(source)
        by_key: dict[tuple[str, str, str], Schedule] = {}
        for one in schedules:
            key = (one.task, one.formulation, one.digest)
            by_key[key] = by_key[key].with_times_of(one) if key in by_key else one
        return cls(by_id, by_key)

    @property
    def identities(self) -> list[Identity]:
        """Identities in the database, sorted; one unless it was mixed."""
        return sorted({source.identity for source in self.sources.values()})

    @property
    def trials(self) -> int:
        """Trials of all sources."""
        return sum(source.trials for source in self.sources.values())

    def tasks(self) -> dict[str, list[Schedule]]:
        """Returns schedules by task, the fastest first."""
        found: dict[str, list[Schedule]] = {}
        for one in sorted(self.schedules.values(), key=lambda one: (one.best_s, one.digest)):
            found.setdefault(one.task, []).append(one)
        return dict(sorted(found.items()))

    def searched(self, task: str) -> list[SearchedTask]:
        """Returns the searches for a task in all sources that have it."""
        return [s.tasks[task] for _, s in sorted(self.sources.items()) if task in s.tasks]

    def parts(self) -> dict[tuple[Identity, str], Database]:
        """Splits the database by identity and cores. Times are comparable only within one part."""
        keys = sorted({(source.identity, source.cores) for source in self.sources.values()})
        return {key: self.of_device(*key) for key in keys}

    def of_device(self, identity: Identity, cores: str) -> Database:
        """Returns the measurements with this identity and these cores."""
        return self._of(lambda source: (source.identity, source.cores) == (identity, cores))

    def of_identity(self, identity: Identity) -> Database:
        """Returns the measurements with this identity, with any cores."""
        return self._of(lambda source: source.identity == identity)

    def fastest(self, count: int) -> Database:
        """Returns the fastest `count` schedules of each kernel and formulation, on each device and its cores."""
        kept = set()
        for part in self.parts().values():
            seen: Counter[tuple[str, str]] = Counter()
            for one in sorted(part.schedules.values(), key=lambda one: (one.best_s, one.digest)):
                seen[one.task, one.formulation] += 1
                if seen[one.task, one.formulation] <= count:
                    kept.add((one.task, one.formulation, one.digest))
        return Database(
            self.sources, {key: one for key, one in self.schedules.items() if key in kept}
        )

    @property
    def workloads(self) -> list[str]:
        """The workloads that its sources searched, sorted: models, or operators."""
        return sorted({source.about.workload for source in self.sources.values()})

    def without(self, workload: str) -> Database:
        """Returns measurements from runs of other workloads."""
        return self._of(lambda source: source.about.workload != workload)

    def _of(self, wanted: Callable[[Source], bool]) -> Database:
        sources = {key: source for key, source in self.sources.items() if wanted(source)}
        schedules = {
            key: replace(one, seconds=times)
            for key, one in self.schedules.items()
            if (times := {k: s for k, s in one.seconds.items() if k in sources})
        }
        return Database(sources, schedules)


def spread(schedules: Sequence[Schedule], most: int) -> list[Schedule]:
    """Returns the fastest schedules as half of `most`, and as many spread over the rest."""
    if len(schedules) <= most:
        return list(schedules)
    first, rest = schedules[: most // 2], schedules[most // 2 :]
    step = len(rest) / (most - most // 2)
    return [*first, *(rest[int(i * step)] for i in range(most - most // 2))]


def merged(databases: Iterable[Database]) -> Database:
    """Returns the union of databases."""
    parts = list(databases)
    return Database.of(
        (source for part in parts for source in part.sources.values()),
        (one for part in parts for one in part.schedules.values()),
    )


def refuse_mixture(databases: Iterable[Database]) -> None:
    """Refuses to combine several devices, drivers, versions of TVM or targets in one database.

    Raises:
        UsageError: Their identities differ; the message gives the differences.
    """
    found = sorted({identity for one in databases for identity in one.identities})
    for name in ("stand_in", "device", "driver", "tvm", "target", "kind"):
        values = list(dict.fromkeys(getattr(identity, name) for identity in found))
        if len(values) > 1:
            what = {
                "stand_in": "of a stand-in and of a real device",
                "tvm": f"of TVM {' and '.join(map(str, values))}",
            }.get(name, f"of several {name}s: {', '.join(map(repr, values))}")
            raise UsageError(
                f"these records are {what}",
                hint="merge those of one device, or say --mixed: each record keeps what it was measured on",
            )


@dataclass(frozen=True)
class TaskDifference:
    """A kernel in two databases.

    Attributes:
        task: Its name.
        best_s: Shortest time in each, in seconds; None if unknown.
        alone: Number of schedules that only one of the two has.
    """

    task: str
    best_s: tuple[float | None, float | None]
    alone: tuple[int, int]

    @property
    def better(self) -> str | None:
        """`a`, `b` or `equal`; None if only one of the two has the kernel."""
        a, b = self.best_s
        if a is None or b is None:
            return None
        return "equal" if a == b else "a" if a < b else "b"


def difference(a: Database, b: Database) -> list[TaskDifference]:
    """Compares two databases, task by task."""
    left, right = a.tasks(), b.tasks()
    found = []
    for task in sorted({*left, *right}):
        sides = (left.get(task, []), right.get(task, []))
        keys = [{(one.formulation, one.digest) for one in side} for side in sides]
        found.append(
            TaskDifference(
                task,
                (
                    min((one.best_s for one in sides[0]), default=None),
                    min((one.best_s for one in sides[1]), default=None),
                ),
                (len(keys[0] - keys[1]), len(keys[1] - keys[0])),
            )
        )
    return found


def _known(about: About | Form) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in asdict(about).items() if value is not None}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
