"""The options that mean a step, as runs and plans keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cli.trust import allow, check_allowed, model_code
from autotune.errors import UsageError
from autotune.records import place_of

if TYPE_CHECKING:
    from autotune.measurement import MemoryKind

GIVE = "say where its runs are with --run"
PUT_BACK = "put it back there, or in the same folder as the run"


@dataclass(frozen=True)
class StepOptions:
    """The step that options of the command line mean; None where one is not given."""

    model: str
    batch: int | None = None
    classes: int | None = None
    optimizer: str | None = None
    input_shape: str | None = None
    runs: tuple[str, ...] = ()
    micro_batch: int | None = None
    recompute: int | None = None
    layout: str | None = None
    gpu_runs: tuple[str, ...] = ()
    gpu_memory: MemoryKind | None = None

    def to_json(self) -> dict[str, Any]:
        """As a run's folder keeps it."""
        return asdict(self) | {"runs": list(self.runs), "gpu_runs": list(self.gpu_runs)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> StepOptions:
        """What `to_json` gave."""
        lists = {name: tuple(found.get(name, ())) for name in ("runs", "gpu_runs")}
        known = {
            name: found[name] for name in found if name in {field.name for field in fields(cls)}
        }
        return cls(**known | lists)

    def with_model(self, holder: Path) -> StepOptions:
        """The same with the file of its model where it is now; see `placed`."""
        file, colon, factory = self.model.rpartition(":")
        found = place_of(file, holder, Path.is_file) if file.endswith(".py") else None
        return self if found is None else replace(self, model=f"{found}{colon}{factory}")

    def placed(self, holder: Path, mend: str, given: Sequence[Path] = ()) -> StepOptions:
        """The same with its runs, and the file of its model, where they are now.

        Args:
            holder: The run's folder, or the plan, that has these options.
            mend: What to do where a run is not found.
            given: Folders of runs: one takes the place of the run of its name; what has no such name counts too.

        Raises:
            UsageError: A run is not found, or the model is code that this user has not allowed.
        """
        placed = self.with_model(holder)
        check_allowed(holder, [model_code(placed.model)])
        named = {Path(run).name for run in (*self.runs, *self.gpu_runs)}
        by_name = {run.resolve().name: run for run in given}
        more = [str(run) for name, run in by_name.items() if name not in named]

        def place(run: str, *, needed: bool) -> list[str]:
            found = by_name.get(Path(run).name) or place_of(run, holder)
            if found is None and needed:
                raise UsageError(
                    f"{holder} takes its kernels from {run}, which is not there", hint=mend
                )
            return [] if found is None else [str(found)]

        # What was renamed may stand for a run that is not found.
        runs = [one for run in self.runs for one in place(run, needed=not more)]
        return replace(
            placed,
            runs=(*more, *runs),
            gpu_runs=tuple(one for run in self.gpu_runs for one in place(run, needed=True)),
        )


def step_options(
    model: str | None,
    batch: int | None,
    classes: int | None,
    optimizer: str | None,
    input_shape: str | None,
    runs: Sequence[Path] | None,
    micro_batch: int | None,
    recompute: int | None,
    layout: str | None,
) -> StepOptions | None:
    """The step that options of the command line mean; None where they mean none.

    A model that is code may run from now on wherever a file names it.

    Raises:
        UsageError: They say something of a step, but not which.
    """
    others = (batch, classes, optimizer, input_shape, runs, micro_batch, recompute, layout)
    if model is None:
        if any(other is not None for other in others):
            raise UsageError("--batch, --run and the like go with --model", hint="give --model")
        return None
    allow([model_code(model)])
    return StepOptions(
        model,
        batch,
        classes,
        optimizer,
        input_shape,
        # They are read again later, from whatever folder.
        tuple(str(run.absolute()) for run in runs or ()),
        micro_batch,
        recompute,
        layout,
    )


__all__ = ["GIVE", "PUT_BACK", "StepOptions", "step_options"]
