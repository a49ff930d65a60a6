"""Updates of optimisers as described kernels, with PyTorch's formulas.

Operands are the parameter, its states, the settings, and last the gradient, which may come straight from the kernel
that makes it. Results are the new parameter and states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from autotune.workloads.expressions import (
    Axis,
    Described,
    Load,
    Operand,
    Stage,
    Term,
    apply,
    integer,
    number,
)
from autotune.workloads.optimizer import Algorithm

Terms = Mapping[str, Term]
"""Values of the operands at one element, by name."""


def _sum(a: Term, b: Term) -> Term:
    return apply("add", a, b)


def _product(*terms: Term) -> Term:
    result, *rest = terms
    for term in rest:
        result = apply("mul", result, term)
    return result


def _blend(share: Term, old: Term, new: Term) -> Term:
    """``share * old + (1 - share) * new``."""
    return _sum(_product(share, old), _product(apply("sub", number(1.0), share), new))


def _less(weight: Term, rate: Term, step: Term) -> Term:
    return apply("sub", weight, _product(rate, step))


def _over_root(step: Term, square: Term, epsilon: Term) -> Term:
    return apply("div", step, _sum(apply("sqrt", square), epsilon))


def _sgd(of: Terms, g: Term) -> list[Term]:
    return [_less(of["weight"], of["learning_rate"], g)]


def _momentum(of: Terms, g: Term) -> list[Term]:
    velocity = _sum(_product(of["momentum"], of["velocity"]), g)
    return [_less(of["weight"], of["learning_rate"], velocity), velocity]


def _nesterov(of: Terms, g: Term) -> list[Term]:
    velocity = _sum(_product(of["momentum"], of["velocity"]), g)
    ahead = _sum(g, _product(of["momentum"], velocity))
    return [_less(of["weight"], of["learning_rate"], ahead), velocity]


def _adam(of: Terms, g: Term) -> list[Term]:
    first = _blend(of["beta1"], of["first"], g)
    second = _blend(of["beta2"], of["second"], _product(g, g))
    one = number(1.0)
    scaled = apply("div", second, apply("sub", one, of["beta2_power"]))
    rate = apply("div", of["learning_rate"], apply("sub", one, of["beta1_power"]))
    return [_less(of["weight"], rate, _over_root(first, scaled, of["epsilon"])), first, second]


def _rmsprop(of: Terms, g: Term) -> list[Term]:
    square = _blend(of["alpha"], of["square"], _product(g, g))
    step = _over_root(g, square, of["epsilon"])
    return [_less(of["weight"], of["learning_rate"], step), square]


def _adagrad(of: Terms, g: Term) -> list[Term]:
    total = _sum(of["sum"], _product(g, g))
    step = _over_root(g, total, of["epsilon"])
    return [_less(of["weight"], of["learning_rate"], step), total]


STATES: Mapping[Algorithm, tuple[str, ...]] = MappingProxyType(
    {
        "sgd": (),
        "momentum": ("velocity",),
        "adam": ("first", "second"),
        "nesterov": ("velocity",),
        "adamw": ("first", "second"),
        "rmsprop": ("square",),
        "adagrad": ("sum",),
    }
)
"""What an optimiser keeps of each parameter; all start at 0."""

_FORMULAS: Mapping[Algorithm, Callable[[Terms, Term], list[Term]]] = MappingProxyType(
    {
        "sgd": _sgd,
        "momentum": _momentum,
        "adam": _adam,
        "nesterov": _nesterov,
        "adamw": _adam,
        "rmsprop": _rmsprop,
        "adagrad": _adagrad,
    }
)


def squares(size: int) -> Described:
    """Returns the sum of the squares of a tensor's elements.

    Args:
        size: Number of elements.
    """
    element = Load(0, (Axis(1),), "float")
    return Described(
        (Operand((size,)),), (Stage((1,), (size,), "sum", _product(element, element)),), (0,)
    )


def total(count: int) -> Described:
    """Returns the sum of as many tensors of one element."""
    first, *rest = (Load(at, (integer(0),), "float") for at in range(count))
    result: Term = first
    for one in rest:
        result = _sum(result, one)
    return _of_one_element(count, result)


def clip_scale() -> Described:
    """Returns the factor of all gradients, from the sum of their squares and the largest norm.

    The formula is that of PyTorch's ``clip_grad_norm_``.
    """
    squared, most = (Load(at, (integer(0),), "float") for at in range(2))
    norm = _sum(apply("sqrt", squared), number(1e-6))
    return _of_one_element(2, apply("min", number(1.0), apply("div", most, norm)))


def _of_one_element(operands: int, term: Term) -> Described:
    return Described((Operand((1,)),) * operands, (Stage((1,), (), "map", term),), (0,))


def described_update(algorithm: Algorithm, size: int, settings: tuple[str, ...]) -> Described:
    """Returns the update of a parameter.

    Args:
        algorithm: The optimiser.
        size: Elements of the parameter.
        settings: Names of the one-element operands after the states. ``weight_decay``, ``clip_value`` (the largest
            absolute value of an element of the gradient) and ``clip_scale`` (a factor of the gradient) may be among
            them.
    """
    names = ("weight", *STATES[algorithm], *settings, "gradient")
    wide = (0, *range(1, 1 + len(STATES[algorithm])), len(names) - 1)
    operands = tuple(Operand((size,) if at in wide else (1,)) for at in range(len(names)))
    of: dict[str, Term] = {
        name: Load(at, (Axis(0) if at in wide else integer(0),), "float")
        for at, name in enumerate(names)
    }
    gradient = of["gradient"]
    if "clip_value" in settings:
        most = of["clip_value"]
        gradient = apply("max", apply("neg", most), apply("min", most, gradient))
    if "clip_scale" in settings:
        gradient = _product(of["clip_scale"], gradient)
    if "weight_decay" in settings:
        decayed = _product(of["weight_decay"], of["weight"])
        if algorithm == "adamw":
            of["weight"] = _less(of["weight"], of["learning_rate"], decayed)
        else:
            gradient = _sum(gradient, decayed)
    stages = tuple(Stage((size,), (), "map", term) for term in _FORMULAS[algorithm](of, gradient))
    return Described(operands, stages, tuple(range(len(stages))))
