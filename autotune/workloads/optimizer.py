"""The optimiser at the end of a training step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from autotune.errors import UsageError, choices

Algorithm = Literal["sgd", "momentum", "adam", "nesterov", "adamw", "rmsprop", "adagrad"]

ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

_SETTINGS: Mapping[Algorithm, tuple[str, ...]] = MappingProxyType(
    {
        "sgd": ("learning_rate",),
        "momentum": ("learning_rate", "momentum"),
        "adam": ("learning_rate", "beta1", "beta2", "epsilon"),
        "nesterov": ("learning_rate", "momentum"),
        "adamw": ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay"),
        "rmsprop": ("learning_rate", "alpha", "epsilon"),
        "adagrad": ("learning_rate", "epsilon"),
    }
)
_DEFAULTS: Mapping[Algorithm, Mapping[str, float]] = MappingProxyType(
    {
        "sgd": {},
        "momentum": {},
        "adam": {"learning_rate": 0.001},
        "nesterov": {},
        "adamw": {"learning_rate": 0.001, "weight_decay": 0.01},
        "rmsprop": {},
        "adagrad": {"epsilon": 1e-10},
    }
)
"""Settings whose defaults differ from the class's."""
_FOR_ALL: Mapping[str, float] = MappingProxyType(
    {"weight_decay": 0.0001, "clip_value": 0.5, "clip_norm": 1.0}
)
"""Settings of every algorithm, where 0 means without, each with an example."""


def settings_of(algorithm: Algorithm) -> tuple[str, ...]:
    """Returns the names of an algorithm's settings."""
    return tuple(dict.fromkeys((*_SETTINGS[algorithm], *_FOR_ALL)))


@dataclass(frozen=True)
class Optimizer:
    """An optimiser with its settings, which mean the same as in PyTorch. Settings of other algorithms are ignored.

    Attributes:
        algorithm: ``sgd``, plain; ``momentum``, SGD with momentum; ``nesterov``, Nesterov's form of it; ``adam``;
            ``adamw``; ``rmsprop``; or ``adagrad``.
        learning_rate: Step size, above 0.
        momentum: Share of the velocity that is kept, in [0, 1).
        beta1: Share of the first moment that is kept, in [0, 1).
        beta2: Share of the second moment that is kept, in [0, 1).
        epsilon: Value that is added to the root of the second moment, above 0.
        alpha: Share of RMSprop's mean square that is kept, in [0, 1).
        weight_decay: Share of the weight that is added to its gradient, at least 0; AdamW takes it from the weight.
        clip_value: Largest absolute value of an element of a gradient, as in ``clip_grad_value_``; 0 for no limit.
        clip_norm: Largest norm of all gradients together, as in ``clip_grad_norm_``; 0 for no limit.

    Raises:
        UsageError: On construction, if the algorithm is unknown or a setting is out of its range.
    """

    algorithm: Algorithm = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    alpha: float = 0.99
    weight_decay: float = 0.0
    clip_value: float = 0.0
    clip_norm: float = 0.0

    def __post_init__(self) -> None:
        """Checks the algorithm and the ranges."""
        if self.algorithm not in ALGORITHMS:
            raise UsageError(
                f"unknown optimizer {self.algorithm!r}",
                hint=choices(self.algorithm, ALGORITHMS, "optimizers:"),
            )
        for name in ("learning_rate", "epsilon"):
            value = getattr(self, name)
            if not (0.0 < value < math.inf):
                raise UsageError(
                    f"optimizer {self.algorithm}: {name}={value} is not a number above 0",
                    hint=f"such as {name}={getattr(type(self), name)}",
                )
        for name, example in _FOR_ALL.items():
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise UsageError(
                    f"optimizer {self.algorithm}: {name}={value} is not a number from 0 on",
                    hint=f"such as {name}={example}",
                )
        if self.clip_value and self.clip_norm:
            raise UsageError(
                f"optimizer {self.algorithm}: clip_value and clip_norm are both given",
                hint="give one of them",
            )
        for name in ("momentum", "beta1", "beta2", "alpha"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise UsageError(
                    f"optimizer {self.algorithm}: {name}={value} is not in [0, 1)",
                    hint=f"such as {name}={getattr(type(self), name)}",
                )

    @property
    def settings(self) -> Mapping[str, float]:
        """The settings that the algorithm uses, by name."""
        names = _SETTINGS[self.algorithm]
        names += tuple(one for one in _FOR_ALL if getattr(self, one) and one not in names)
        return {name: getattr(self, name) for name in names}

    def spec(self) -> str:
        """Returns the canonical text, such as ``momentum:learning_rate=0.01,momentum=0.9``."""
        settings = (f"{name}={value!r}" for name, value in self.settings.items())
        return f"{self.algorithm}:{','.join(settings)}"

    @classmethod
    def parse(cls, text: str) -> Optimizer:
        """Reads an optimiser such as ``sgd``, ``adam`` or ``momentum:learning_rate=0.1,momentum=0.8``.

        Args:
            text: ``algorithm`` or ``algorithm:key=value,...``. The default learning rate is 0.01; for Adam, 0.001.

        Returns:
            The optimiser.

        Raises:
            UsageError: Unknown algorithm; unknown or repeated key; a value that is not a number or is out of range.
        """
        name, _, body = (part.strip() for part in text.partition(":"))
        algorithm = next((known for known in ALGORITHMS if known == name), None)
        if algorithm is None:
            raise UsageError(
                f"unknown optimizer {name!r}", hint=choices(name, ALGORITHMS, "optimizers:")
            )
        keys = settings_of(algorithm)
        values = dict(_DEFAULTS[algorithm])
        given: set[str] = set()
        for part in body.split(",") if body else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or key not in keys or key in given:
                what = (
                    f"{key} is given twice"
                    if key in given
                    else f"{part.strip()!r} is not a setting"
                )
                raise UsageError(
                    f"optimizer {name}: {what}",
                    hint=f"write key=value with keys {', '.join(keys)}",
                )
            given.add(key)
            values[key] = _number(f"optimizer {name}: {key}", value)
        return cls(algorithm, **values)


def _number(where: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{where}={text!r} is not a number", hint="such as 0.01") from None
