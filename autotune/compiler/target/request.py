"""The request of a kernel run, frozen, and its form in `run.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from autotune.compiler.target.spaces import Space
from autotune.compiler.target.targets import Family, TargetSpec, check_attributes
from autotune.errors import RecordError, UsageError
from autotune.reading import Count, Name, Unreadable, typed
from autotune.records import Run
from autotune.workloads import OwnKernel, Task, parse_kernel


@dataclass(frozen=True)
class Fleet:
    """Devices behind a tracker: its address as `HOST:PORT`, and the key under which it lists them."""

    tracker: str
    key: str


@dataclass(frozen=True)
class Cores:
    """The cores that kernels are tuned for.

    Attributes:
        cluster: Name of a cluster, or `hybrid` for all of them.
        cpus: Numbers of the cores.
        emulated: Name of the emulated device whose model computes the times; empty if kernels really run.
    """

    cluster: str
    cpus: tuple[int, ...]
    emulated: str = ""


@dataclass(frozen=True)
class TuneRequest:
    """The request of one kernel run.

    Attributes:
        target: What to compile for.
        space: The search space.
        workload: Name for display and for the run's folder: that of the model or of the operator.
        batch: Batch size, as the user gave it; None for a single operator.
        tasks: Distinct kernels with their counts.
        trials: Total number of candidates to measure.
        seed: Seed of everything random, between 1 and 2^31-1.
        fleet: The devices; None for this host, or for the stand-in of the target on this host.
        cores: The cores that kernels are tuned for; None for all cores.
        start_from: Folders of earlier runs. Their best schedules of the same kernels are tried first.
        records: Paths of databases of records; may be empty.
        own: Place of the user's own kernel, `file.py:function`; None for kernels of this project.
    """

    target: TargetSpec
    space: Space
    workload: str
    batch: int | None
    tasks: tuple[Task, ...]
    trials: int
    seed: int
    fleet: Fleet | None = None
    cores: Cores | None = None
    start_from: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    own: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, enough to continue the run later."""
        return {
            "kind": "kernels",
            "target": {
                "name": self.target.name,
                "family": self.target.family,
                "space_file": self.target.space_file,
                "description": self.target.description,
                "triple": self.target.triple,
                "tvm": dict(self.target.tvm),
            },
            "space": self.space.model_dump(mode="json"),
            "workload": self.workload,
            "batch": self.batch,
            "tasks": [
                {
                    "spec": task.kernel.spec,
                    "role": task.kernel.role,
                    "count": task.count,
                    "places": list(task.places),
                }
                for task in self.tasks
            ],
            "trials": self.trials,
            "seed": self.seed,
            "fleet": asdict(self.fleet) if self.fleet else None,
            "cores": asdict(self.cores) if self.cores else None,
            "start_from": list(self.start_from),
            "records": list(self.records),
            "own": self.own,
        }

    @classmethod
    def of_run(cls, run: Run) -> TuneRequest:
        """Returns the request of a run.

        Raises:
            UsageError: The run is not a kernel run.
            RecordError: Its request is damaged, or an event is of a kernel that it does not ask for.
        """
        content = run.about.get("request", {})
        if isinstance(content, dict) and content.get("kind") != "kernels":
            plan = run.path / "plans" / "best.json"
            raise UsageError(
                f"{run.path} is not a run of `autotune kernels`",
                hint=f"its plans are in {plan.parent}, such as {plan}"
                if plan.is_file()
                else "give a folder that `autotune kernels` has made",
            )
        request = cls.from_json(content)
        names = {task.kernel.name for task in request.tasks}
        for event in run.events:
            if "task" in event and str(event["task"]) not in names:
                raise RecordError(f"{run.path}: a record of an unknown task {event['task']!r:.80}")
        return request

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TuneRequest:
        """Reads the output of `to_json`.

        Raises:
            RecordError: It is not the request of a kernel run, or it is damaged.
        """
        if not isinstance(content, dict) or content.get("kind") != "kernels":
            raise RecordError("the run's request is damaged, or not one of a kernel run")
        try:
            found = typed(_Written, content)
            check_attributes(found.target.tvm)
            tvm = tuple(
                (key, tuple(value) if isinstance(value, list) else value)
                for key, value in found.target.tvm.items()
            )
            tasks = tuple(
                Task(parse_kernel(one.spec, one.role), one.count, one.places) for one in found.tasks
            )
            if found.own is None and any(isinstance(t.kernel.operator, OwnKernel) for t in tasks):
                raise RecordError(
                    "the run's request is damaged: its kernel is the user's own, but it names no file of it",
                    hint="tune the kernel in a new run",
                )
            return cls(
                target=TargetSpec(**{**vars(found.target), "tvm": tvm}),
                space=found.space,
                workload=found.workload,
                batch=found.batch,
                tasks=tasks,
                trials=found.trials,
                seed=found.seed,
                fleet=found.fleet,
                cores=found.cores,
                start_from=found.start_from,
                records=found.records,
                own=found.own,
            )
        except (Unreadable, UsageError) as error:
            raise RecordError(f"the run's request is damaged: {error}") from error


@dataclass(frozen=True)
class _Target:
    name: str
    family: Family
    space_file: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    description: str
    triple: Annotated[str, Field(pattern=r"^[\w.-]*$")]
    tvm: dict[str, Any]


@dataclass(frozen=True)
class _Task:
    spec: Annotated[str, Field(max_length=4000)]
    role: str
    count: Count
    places: tuple[str, ...]


@dataclass(frozen=True)
class _Written:
    """A request as it is stored in `run.json`."""

    target: _Target
    space: Space
    workload: str
    batch: Count | None
    tasks: tuple[_Task, ...]
    trials: Count
    seed: Count
    fleet: Fleet | None = None
    cores: Cores | None = None
    start_from: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    own: Name | None = None
