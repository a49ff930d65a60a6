"""Element-wise kernels: bias, activation, sum, dropout and update, alone or as the epilogue of another kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.registry import Tensors, epilogue, formulation
from autotune.workloads.operators import (
    Adam,
    Add,
    Bias,
    Dropout,
    Kernel,
    Momentum,
    Operator,
    Relu,
    Role,
    RunningPower,
    Sgd,
)

Values = Sequence[Any]
Body = Callable[[Any, Values], Values]


def _elementwise(operator: type[Operator], role: Role) -> Callable[[Body], Body]:
    """Registers a function that maps the operands' values at one element to the outputs' values at this element."""

    def register(body: Body) -> Body:
        def alone(op: Operator, inputs: Tensors) -> Tensors:
            kernel = Kernel(op, role)
            (shape, *_) = (spec.shape for spec in kernel.outputs)
            return _outputs(op, kernel, body, inputs, shape)

        def after(op: Operator, streamed: Any, added: Tensors) -> Tensors:
            kernel = Kernel(op, role)
            at = kernel.streamed or 0
            operands = [*added[:at], streamed, *added[at:]]
            shape = tuple(int(extent) for extent in streamed.shape)
            return _outputs(op, kernel, body, operands, shape)

        formulation(operator.name, role, "direct")(alone)
        epilogue(operator.name, role)(after)
        return body

    return register


def _outputs(
    op: Any, kernel: Kernel, body: Body, operands: Tensors, shape: tuple[int, ...]
) -> Tensors:
    channel = len(shape) - 1 if getattr(op, "channels_last", False) else min(1, len(shape) - 1)

    def value(operand: Any, index: Sequence[Any]) -> Any:
        extents = tuple(int(extent) for extent in operand.shape)
        if extents == shape:
            return operand[tuple(index)]
        return operand[0] if extents == (1,) else operand[index[channel]]

    def output(number: int, name: str) -> Any:
        return te.compute(
            shape, lambda *index: body(op, [value(t, index) for t in operands])[number], name=name
        )

    return [output(number, spec.name) for number, spec in enumerate(kernel.outputs)]


def zero() -> Any:
    """Returns the constant 0 in float32."""
    return te.const(0.0, "float32")


@_elementwise(Bias, "forward")
def bias_forward(op: Bias, values: Values) -> Values:
    x, bias = values
    return [te.max(x + bias, zero()) if op.relu else x + bias]


@_elementwise(Bias, "data_grad")
def bias_data_grad(op: Bias, values: Values) -> Values:
    y, dy = values
    return [tirx.Select(y > zero(), dy, zero())]


@_elementwise(Relu, "forward")
def relu_forward(op: Relu, values: Values) -> Values:
    y = te.max(values[0], zero())
    return [te.min(y, te.const(6.0, "float32")) if op.six else y]


@_elementwise(Relu, "data_grad")
def relu_data_grad(op: Relu, values: Values) -> Values:
    y, dy = values
    passes = te.all(y > zero(), y < te.const(6.0, "float32")) if op.six else y > zero()
    return [tirx.Select(passes, dy, zero())]


@_elementwise(Add, "forward")
@_elementwise(Add, "data_grad")
def add(op: Add, values: Values) -> Values:
    a, b = values
    return [a + b]


@_elementwise(Dropout, "forward")
@_elementwise(Dropout, "data_grad")
def dropout(op: Dropout, values: Values) -> Values:
    x, mask = values
    return [x * mask]


@_elementwise(Sgd, "update")
def sgd(op: Sgd, values: Values) -> Values:
    weight, grad, rate = values
    return [weight - rate * grad]


@_elementwise(Momentum, "update")
def momentum(op: Momentum, values: Values) -> Values:
    weight, velocity, grad, rate, decay = values
    faster = decay * velocity + grad
    return [weight - rate * faster, faster]


@_elementwise(Adam, "update")
def adam(op: Adam, values: Values) -> Values:
    weight, first, second, grad, rate, beta1, beta2, epsilon, power1, power2 = values
    one = te.const(1.0, "float32")
    new_first = beta1 * first + (one - beta1) * grad
    new_second = beta2 * second + (one - beta2) * (grad * grad)
    deviation = te.sqrt(new_second / (one - power2)) + epsilon
    return [weight - rate / (one - power1) * new_first / deviation, new_first, new_second]


@_elementwise(RunningPower, "update")
def running_power(op: RunningPower, values: Values) -> Values:
    power, base = values
    return [power * base]
