"""Updates of the parameters: one pass over weights, gradients and moments."""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Adam, Momentum, RunningPower, Sgd


@formulation("sgd", "update", "direct")
def sgd(op: Sgd, inputs: Tensors) -> Tensors:
    weight, grad, rate = inputs
    return [te.compute((op.size,), lambda i: weight[i] - rate[0] * grad[i], name="new_weight")]


@formulation("momentum", "update", "direct")
def momentum(op: Momentum, inputs: Tensors) -> Tensors:
    weight, velocity, grad, rate, decay = inputs
    faster = te.compute((op.size,), lambda i: decay[0] * velocity[i] + grad[i], name="new_velocity")
    return [
        te.compute((op.size,), lambda i: weight[i] - rate[0] * faster[i], name="new_weight"),
        faster,
    ]


@formulation("adam", "update", "direct")
def adam(op: Adam, inputs: Tensors) -> Tensors:
    weight, first, second, grad, rate, beta1, beta2, epsilon, power1, power2 = inputs
    one = te.const(1.0, "float32")

    new_first = te.compute(
        (op.size,),
        lambda i: beta1[0] * first[i] + (one - beta1[0]) * grad[i],
        name="new_first",
    )
    new_second = te.compute(
        (op.size,),
        lambda i: beta2[0] * second[i] + (one - beta2[0]) * (grad[i] * grad[i]),
        name="new_second",
    )

    def new_weight(i: Any) -> Any:
        deviation = te.sqrt(new_second[i] / (one - power2[0])) + epsilon[0]
        return weight[i] - rate[0] / (one - power1[0]) * new_first[i] / deviation

    return [te.compute((op.size,), new_weight, name="new_weight"), new_first, new_second]


@formulation("running_power", "update", "direct")
def running_power(op: RunningPower, inputs: Tensors) -> Tensors:
    power, base = inputs
    return [te.compute((op.size,), lambda i: power[i] * base[i], name="new_power")]
