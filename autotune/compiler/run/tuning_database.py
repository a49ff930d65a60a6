"""TVM's own database files of a run, written from its valid trials."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.compiler.programs import Candidate
from autotune.compiler.run.resume import Replayed
from autotune.compiler.search import FormulationSearch
from autotune.measurement import Outcome
from autotune.records import RunFolder


class TuningDatabase:
    """Appends to `database_workload.json` and `database_tuning_record.json`.

    The run's events are authoritative. These files are for TVM's own tools.

    Args:
        folder: The run folder, open for writing.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._workloads: dict[str, int] = {}

    def store(self, searcher: FormulationSearch, candidate: Candidate, outcome: Outcome) -> None:
        """Adds one valid trial."""
        if searcher.name not in self._workloads:
            self._folder.database_workload(searcher.workload_record())
            self._workloads[searcher.name] = len(self._workloads)
        index = self._workloads[searcher.name]
        self._folder.database_record(index, searcher.tuning_record(candidate, outcome))

    def rewrite(self, replayed: Sequence[Replayed]) -> None:
        """Rewrites both files from the trials of a resumed run.

        After a kill they can lag behind the events, so they are not trusted.
        """
        self._folder.clear_database()
        self._workloads = {}
        for searcher in replayed:
            for candidate, outcome in zip(searcher.candidates, searcher.outcomes, strict=True):
                if outcome.ok:
                    self.store(searcher.searcher, candidate, outcome)
