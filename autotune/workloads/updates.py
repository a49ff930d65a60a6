"""Writes the updates of a step: what each optimiser keeps, reads and replaces."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.workloads.autodiff import StepRecorder
from autotune.workloads.expressions import MOST_OPERANDS, Described
from autotune.workloads.expressions.optimizer_updates import (
    STATES,
    clip_scale,
    described_update,
    squares,
    total,
)
from autotune.workloads.graph import Initial, Tensor
from autotune.workloads.operators import Adam, Expression, Momentum, Operator, RunningPower, Sgd
from autotune.workloads.optimizer import Optimizer


def write_updates(
    step: StepRecorder, optimizer: Optimizer, gradients: Sequence[tuple[Tensor, str]]
) -> None:
    """Appends one update per parameter, and what all updates share.

    The optimiser's settings become constants with their names. A parameter ``fc.weight`` gets the state
    ``fc.weight.velocity`` with momentum, or ``fc.weight.first`` and ``fc.weight.second`` with Adam. Adam's
    ``beta1_power`` and ``beta2_power`` are states that are updated once, before the parameters. A limit of the norm
    is a factor of all gradients, which is computed once.

    Args:
        step: The step to append to.
        optimizer: The optimiser.
        gradients: Each parameter with the name of its gradient.
    """
    constants = {name: step.constant(name, value) for name, value in optimizer.settings.items()}
    powers = {}
    if optimizer.algorithm in ("adam", "adamw"):
        powers = {f"{base}_power": _power(step, base) for base in ("beta1", "beta2")}
    states = STATES[optimizer.algorithm]
    rates = constants | powers
    if optimizer.clip_norm:
        rates["clip_scale"] = _clip_scale(step, gradients, rates.pop("clip_norm"))
    for parameter, gradient in gradients:
        known = _known(optimizer, parameter.elements)
        if known is not None:
            _update(step, parameter, known, states, (gradient, *rates.values()))
            continue
        described = described_update(optimizer.algorithm, parameter.elements, tuple(rates))
        operator = Expression.of(described)
        _update(step, parameter, operator, states, (*rates.values(), gradient))


def _known(optimizer: Optimizer, size: int) -> Operator | None:
    """The operator of its own that an update has; None for one that is described."""
    if optimizer.weight_decay or optimizer.clip_value or optimizer.clip_norm:
        return None
    match optimizer.algorithm:
        case "sgd":
            return Sgd(size)
        case "momentum":
            return Momentum(size)
        case "adam":
            return Adam(size)
        case _:
            return None


def _update(
    step: StepRecorder,
    parameter: Tensor,
    operator: Operator,
    moments: tuple[str, ...],
    operands: tuple[str, ...],
) -> None:
    """Appends the update of a parameter and of its moments, which start at 0."""
    replaced = [parameter.name]
    for moment in moments:
        name, initial = f"{parameter.name}.{moment}", Initial("constant", 0.0)
        replaced.append(step.define(name, parameter.shape, "state", initial=initial))
    updated = [step.define(f"{name}.updated", parameter.shape, "updated") for name in replaced]
    place = parameter.name.rpartition(".")[0] or parameter.name
    step.run(place, operator, "update", (*replaced, *operands), tuple(updated))


def _clip_scale(step: StepRecorder, gradients: Sequence[tuple[Tensor, str]], most: str) -> str:
    """Appends the factor that limits the norm of all gradients; returns its name."""
    sums = []
    for parameter, gradient in gradients:
        name = f"{parameter.name}.grad.squares"
        sums.append(_clipping(step, name, squares(parameter.elements), (gradient,)))
    while len(sums) > 1:
        some, sums = sums[:MOST_OPERANDS], sums[MOST_OPERANDS:]
        name = f"gradients.squares{len(sums)}"
        sums.append(_clipping(step, name, total(len(some)), tuple(some)))
    return _clipping(step, "gradients.scale", clip_scale(), (sums[0], most))


def _clipping(step: StepRecorder, name: str, kernel: Described, operands: tuple[str, ...]) -> str:
    """Appends a kernel of one element for the clipping of gradients; returns the result's name."""
    result = step.define(name, (1,), "clipping")
    step.run("gradients", Expression.of(kernel), "forward", operands, (result,))
    return result


def _power(step: StepRecorder, base: str) -> str:
    """Appends the running power of ``base``, which counts the steps; returns its name after the update."""
    power = step.define(f"{base}_power", (1,), "state", initial=Initial("constant", 1.0))
    updated = step.define(f"{power}.updated", (1,), "updated")
    step.run(power, RunningPower(1), "update", (power, base), (updated,))
    return updated
