"""Words of the commands that the results of kernel runs and of records lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.jobs.requests import StepRequest
    from autotune.records import Database, Source

_EMULATED = "emulated "
_REMOTE = "rpc-"
_SMALLEST = "lenet"
"""The built-in model that is tuned fastest."""


def step_words(step: StepRequest, batch: int | None) -> list[object]:
    """Returns the options that describe a training step.

    Args:
        step: The step.
        batch: Samples of the step, if the request leaves them to the default.
    """
    options = {
        "--model": step.model, "--batch": batch if step.batch is None else step.batch,
        "--classes": step.classes, "--optimizer": step.optimizer, "--input-shape": step.input_shape,
        "--micro-batch": step.micro_batch, "--recompute": step.recompute, "--layout": step.layout,
    }  # fmt: skip
    words: list[object] = [
        word for option in options.items() if option[1] is not None for word in option
    ]
    return words + [word for pattern in step.train for word in ("--train", pattern)]


def typed_step(step: StepRequest, run: Path) -> StepRequest | None:
    """Returns a step with a model that can be typed here: as it was named, or with the present place of its file.

    Returns None if its file is gone, or if it is code that this user has neither used nor allowed: typing the name
    would allow it.

    Args:
        step: The step.
        run: The run that names it.
    """
    from autotune.jobs.requests import is_allowed, model_code

    if model_code(step.model) is None and not step.is_gone:
        return step
    for one in (step, step.with_model(run)):
        file, code = Path(one.model.rpartition(":")[0]), model_code(one.model)
        there = file.is_file() or file.suffix != ".py"
        if code is not None and there and is_allowed(code):
            return one
    return None


def tuning_words(database: Database, records: Path, measured: Sequence[Path]) -> list[object]:
    """Returns the words of the command that tunes what the newest run of some records tuned, where it did.

    The command can be typed as it is. Runs of a model that can be named come before others. Records have no name of
    a model of the user's own; its run has one. If that is not there, one kernel of the model is meant. If a tracker
    or a target is not known, the command shows what there is.

    Args:
        database: The records.
        records: Their path.
        measured: Paths at which the runs that measured them may be: runs, or folders of runs.
    """
    found = [_tuned(source, measured) for source in database.sources.values()]
    made = max(found, key=lambda one: (one.step is not None, one.source.about.began), default=None)
    if made is None:
        return ["kernels", "--model", _SMALLEST, "--records", records]
    where = _where(made)
    if where is None:
        return ["devices"] if made.source.identity.kind.startswith(_REMOTE) else ["targets"]
    what = _operator(made) if made.step is None else step_words(made.step, made.batch)
    if what is None:
        run = _folder(made.source, measured)
        return ["runs"] if run is None else ["trust", run]
    return ["kernels", *what, *where, "--records", records]


@dataclass(frozen=True)
class _Tuned:
    """A run that measured records.

    Attributes:
        source: What the records say about it.
        step: Its step; None for one operator, or if its model cannot be named.
        asked: Its request; empty if the run is not there.
    """

    source: Source
    step: StepRequest | None
    asked: Mapping[str, Any]

    @property
    def batch(self) -> int | None:
        """Samples in its step."""
        return self.source.about.batch


def _tuned(source: Source, measured: Sequence[Path]) -> _Tuned:
    from autotune.jobs.requests import StepRequest
    from autotune.records import read_json
    from autotune.workloads.models import MODELS

    run = _folder(source, measured)
    about = {} if run is None else read_json(run / "run.json")
    asked = about.get("request") or {}
    if source.about.batch is None:
        return _Tuned(source, None, asked)
    workload, form = source.about.workload, source.about.step
    if workload in {model.name for model in MODELS}:
        step = _plain(None if form is None else asdict(form))
        return _Tuned(source, StepRequest.from_json({**step, "model": workload}), asked)
    own = _plain(about.get("step"))
    if run is None or "model" not in own:
        return _Tuned(source, None, asked)
    return _Tuned(source, typed_step(StepRequest.from_json(own), run), asked)


def _folder(source: Source, measured: Sequence[Path]) -> Path | None:
    """Returns the run of a source, if it is at one of some paths, or in one of them."""
    from autotune.records import is_run

    name = source.about.run
    places = (one for path in measured for one in (path, path / name))
    return next((one for one in places if is_run(one) and one.resolve().name == name), None)


def _plain(form: object) -> dict[str, Any]:
    """Returns the options of a step that can be typed: whole numbers and printable text."""
    step = form if isinstance(form, Mapping) else {}
    options = {
        name: value
        for name, value in step.items()
        if isinstance(value, int) or (isinstance(value, str) and value.isprintable())
    }
    train = step.get("train")
    patterns = train if isinstance(train, list) else []
    return {**options, "train": [one for one in map(str, patterns) if one.isprintable()]}


def _operator(made: _Tuned) -> list[object] | None:
    """Returns the options that tune a run's operator, or the first kernel of its step that `--op` takes.

    None for a kernel of the user's own whose code is not known, or was not used on this machine before.
    """
    from autotune.errors import UsageError
    from autotune.jobs.requests import is_allowed, outside
    from autotune.workloads import parse_kernels

    source, own = made.source, made.asked.get("own")
    if any(kernel.spec.startswith("own:") for kernel in source.tasks.values()):
        if not isinstance(own, str) or not own.isprintable():
            return None
        known = all(map(is_allowed, filter(None, outside(own=own))))
        return ["--op", own if ".py:" in own else f"own:{own}"] if known else None
    for kernel in source.tasks.values():
        roles = [one.role for one in source.tasks.values() if one.spec == kernel.spec]
        try:
            parse_kernels(kernel.spec, ",".join(roles))
        except UsageError:
            continue
        return ["--op", kernel.spec, "--role", ",".join(roles)]
    return ["--model", _SMALLEST]


def _where(made: _Tuned) -> list[object] | None:
    """Returns the options for the device that a run measured; None if it is not known how it is reached."""
    from autotune.jobs.requests import is_allowed, outside

    source = made.source
    identity, cluster = source.identity, source.cores.partition(",")[0]
    words: list[object] = [] if cluster == "all" else ["--cluster", cluster]
    if identity.device.startswith(_EMULATED):
        return ["--emulate", identity.device.removeprefix(_EMULATED), *words]
    if identity.kind.startswith(_REMOTE):
        fleet = made.asked.get("fleet")
        if not fleet or not all(map(is_allowed, filter(None, outside(tracker=fleet["tracker"])))):
            return None
        words += ["--tracker", fleet["tracker"], "--key", fleet["key"]]
    target = _target(source)
    if target is None:
        return None
    return words if target == "cpu" else ["--target", target, *words]


def _target(source: Source) -> str | None:
    """Returns the target's name; None if it is not known. Older records have only the kind of its processor."""
    from autotune.compiler.target import TARGETS

    family, _, triple = source.identity.target.partition(" ")
    alike = [
        one.name
        for one in TARGETS
        if one.family == family and (family == "opencl" or one.triple == triple)
    ]
    target = source.about.target
    return target if target in alike else alike[-1] if alike else None


__all__ = ["step_words", "tuning_words", "typed_step"]
