"""Writes the updates of a step: what each optimiser keeps, reads and replaces."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.workloads.autodiff import StepRecorder
from autotune.workloads.expressions.optimizer_updates import STATES, described_update
from autotune.workloads.graph import Initial, Tensor
from autotune.workloads.operators import Adam, Expression, Momentum, Operator, RunningPower, Sgd
from autotune.workloads.optimizer import Optimizer


def write_updates(
    step: StepRecorder, optimizer: Optimizer, gradients: Sequence[tuple[Tensor, str]]
) -> None:
    """Appends one update per parameter, and what all updates share.

    The optimiser's settings become constants with their names. A parameter ``fc.weight`` gets the state
    ``fc.weight.velocity`` with momentum, or ``fc.weight.first`` and ``fc.weight.second`` with Adam. Adam's
    ``beta1_power`` and ``beta2_power`` are states that are updated once, before the parameters.

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
    if optimizer.weight_decay:
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


def _power(step: StepRecorder, base: str) -> str:
    """Appends the running power of ``base``, which counts the steps; returns its name after the update."""
    power = step.define(f"{base}_power", (1,), "state", initial=Initial("constant", 1.0))
    updated = step.define(f"{power}.updated", (1,), "updated")
    step.run(power, RunningPower(1), "update", (power, base), (updated,))
    return updated
