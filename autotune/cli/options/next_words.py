"""Words of the commands that the results of kernel runs and of records lead to."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.jobs.requests import StepRequest
    from autotune.records import Database, Source

_EMULATED = "emulated "


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


def tuning_words(database: Database) -> list[object]:
    """Returns the options of `autotune kernels` that tune what the newest run of some records tuned, where it did.

    Runs of a built-in model come before others. A model of the user's own is only named `MODEL`, because it is code
    and the records may come from somebody else.
    """
    from autotune.workloads.models import MODELS

    known = {model.name for model in MODELS}
    made = sorted(
        database.sources.values(), key=lambda one: (one.about.workload in known, one.about.began)
    )
    if not made:
        return ["--model", "MODEL"]
    return [*_what(made[-1], known), *_where(made[-1])]


def _what(source: Source, known: set[str]) -> list[object]:
    from autotune.jobs.requests import StepRequest
    from autotune.records import Form

    workload, batch = source.about.workload, source.about.batch
    kernels = list(source.tasks.values())
    if batch is None and kernels:
        return ["--op", kernels[0].spec, "--role", ",".join(one.role for one in kernels)]
    told = {
        name: value
        for name, value in asdict(source.about.step or Form()).items()
        if not isinstance(value, str) or value.isprintable()
    }
    model = workload if workload in known else "MODEL"
    return step_words(StepRequest(model, **told), batch)


def _where(source: Source) -> list[object]:
    identity, cluster = source.identity, source.cores.partition(",")[0]
    words: list[object] = [] if cluster == "all" else ["--cluster", cluster]
    if identity.device.startswith(_EMULATED):
        return ["--emulate", identity.device.removeprefix(_EMULATED), *words]
    if identity.kind.startswith("rpc-"):
        words += ["--tracker", "HOST:PORT", "--key", "KEY"]
    target = _target(source)
    return words if target == "cpu" else ["--target", target, *words]


def _target(source: Source) -> str:
    """Returns the target's name. Older records have only the kind of its processor."""
    from autotune.compiler.target import TARGETS

    family, _, triple = source.identity.target.partition(" ")
    alike = [
        one.name
        for one in TARGETS
        if one.family == family and (family == "opencl" or one.triple == triple)
    ]
    told = source.about.target
    return told if told in alike else alike[-1] if alike else "TARGET"


__all__ = ["step_words", "tuning_words"]
