"""Functions compiled as polynomials have the values of float64, to some units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te

from autotune.compiler.llvm import vector_math

Array = NDArray[Any]
TARGET = {"kind": "llvm", "opt-level": 2}
LANES = 8
COUNT = 1 << 16
WIDE = np.concatenate([
    np.linspace(-110.0, 95.0, COUNT // 2), np.geomspace(1e-40, 3e38, COUNT // 4),
    -np.geomspace(1e-40, 1e3, COUNT // 4),
]).astype(np.float32)  # fmt: skip
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1.0, 88.5], np.float32)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


EXACT: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 2.0),
    "log": (np.log, 2.0),
    "tanh": (np.tanh, 2.0),
    "sigmoid": (_sigmoid, 4.0),
    "erf": (np.vectorize(math.erf), 3.0),
}


def computed(name: str, values: Array, lanes: int, *, active: bool = True) -> Array:
    """What a compiled kernel gives."""
    given = te.placeholder(values.shape, "float32", name="given")
    made = te.compute(values.shape, lambda i: getattr(te, name)(given[i]), name="made")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([given, made])}))
    (loop,) = schedule.get_loops(schedule.get_sblock("made"))
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    with vector_math() if active else nullcontext():
        library = tvm.compile(schedule.mod, TARGET)
    result = tvm.runtime.tensor(np.zeros_like(values))
    library["main"](tvm.runtime.tensor(values), result)
    return np.asarray(result.numpy())


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", EXACT)
@np.errstate(all="ignore")
def test_values_are_within_units_in_the_last_place(name: str, lanes: int) -> None:
    exact, allowed = EXACT[name]
    found, wanted = computed(name, WIDE, lanes), exact(WIDE.astype(np.float64))
    # Results below the least normal number may lose bits.
    normal = (np.abs(wanted) < 3.4e38) & ((np.abs(wanted) > 1.2e-38) | (wanted == 0.0))
    unit = np.spacing(np.maximum(np.abs(wanted[normal]), 1.2e-38).astype(np.float32))
    off = np.abs(found[normal] - wanted[normal]) / unit
    assert off.max() <= allowed, f"at {WIDE[normal][off.argmax()]}"
    assert np.abs(found[~normal & (np.abs(wanted) < 1.0)]).max(initial=0.0) < 1.2e-38


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", EXACT)
@np.errstate(all="ignore")
def test_special_values_stay_special(name: str, lanes: int) -> None:
    wanted = EXACT[name][0](SPECIAL.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(computed(name, SPECIAL, lanes), wanted, rtol=1e-6, atol=1e-38)


def test_code_is_tvms_own_outside() -> None:
    """The baseline that tuned kernels are compared with must not become faster."""
    values = np.linspace(-2.0, 2.0, COUNT, dtype=np.float32)
    assert np.any(computed("tanh", values, 1) != computed("tanh", values, 1, active=False))
    np.testing.assert_allclose(
        computed("tanh", values, 1), computed("tanh", values, 1, active=False), atol=1e-6
    )
