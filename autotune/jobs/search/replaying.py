"""Searches over a recorded table as if it were a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError
from autotune.jobs.device import limits, one_of
from autotune.studies.replay import Replayed, TableEvaluator, read, read_traces, search
from autotune.studies.run import SAMPLERS, StudyRequest
from autotune.studies.space import OBJECTIVES, CpuConfiguration, Figures, needs_energy


@dataclass(frozen=True)
class ReplayRequest:
    """Several searches over one table, each with its own seed.

    Attributes:
        recorded: A table, a run of cpu-config, or a folder of published traces.
        objective: `latency`, `energy`, `edp` or `pareto`.
        sampler: The sampler that proposes configurations.
        model: Whether models of time and power guide the search.
        deadline: Longest allowed step, with its unit; None without a deadline.
        network, batch: For traces: the network and the batch whose runs make up the table.
        usb_alone: For traces: whether the battery's share of the power is left out.
        seeds: Number of searches.
    """

    recorded: Path
    objective: str
    sampler: str
    model: bool
    deadline: str | None
    network: str | None
    batch: int | None
    usb_alone: bool
    seeds: int

    @property
    def traces(self) -> bool:
        """Whether the table is made from published traces."""
        return self.recorded.is_dir() and not (self.recorded / "run.json").exists()

    @property
    def lists_traces(self) -> bool:
        """Whether all runs of the traces are listed and nothing is searched."""
        return self.traces and (self.network, self.batch, self.usb_alone) == (None, None, False)

    def check(self) -> None:
        """Checks everything that does not depend on the table.

        Raises:
            UsageError: An option is wrong, or does not suit such a table.
        """
        if self.seeds < 1:
            raise UsageError(f"--seeds is {self.seeds}", hint="give a number from 1 on")
        of_traces = self.network is not None or self.batch is not None or self.usb_alone
        if not self.traces and of_traces:
            raise UsageError(
                f"{self.recorded} is not a folder of traces",
                hint="--network, --batch and --usb-alone are for those",
            )
        if self.traces and not self.lists_traces and (self.network is None or self.batch is None):
            raise UsageError("a search over traces needs --network and --batch")


@dataclass(frozen=True)
class ReplayResult:
    """Results of searches over a table.

    Attributes:
        evaluator: The table that was searched.
        recorded: Everything in the table. Configurations without energy may be left out of the search.
        searches: One for each seed, from 1 on.
    """

    evaluator: TableEvaluator
    recorded: Mapping[CpuConfiguration, Figures]
    searches: Sequence[Replayed]

    @property
    def measurements(self) -> list[int]:
        """Measurements that each search needed to reach its goal."""
        return [found.measurements for found in self.searches]


def replay(request: ReplayRequest) -> ReplayResult:
    """Searches a table.

    Raises:
        UsageError: The request is wrong, or the table cannot be read or searched.
    """
    request.check()
    if request.network is None or request.batch is None:
        evaluator = read(request.recorded)
    else:
        evaluator = read_traces(
            request.recorded, request.network, request.batch, usb_alone=request.usb_alone
        )
    bounds = limits(request.deadline, None, None, None)
    objective = one_of("--objective", request.objective, OBJECTIVES)
    sampler = one_of("--sampler", request.sampler, SAMPLERS)
    recorded = evaluator.figures()
    if needs_energy(objective, bounds):
        evaluator = evaluator.with_joules()
    space = evaluator.space()
    searches = [
        search(
            evaluator,
            StudyRequest(space, objective, bounds, space.size, sampler, request.model, seed),
        )
        for seed in range(1, request.seeds + 1)
    ]
    return ReplayResult(evaluator, recorded, searches)
