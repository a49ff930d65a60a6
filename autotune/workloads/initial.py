"""Values from outside: first parameters, and each step's data, labels and masks."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.data import batches, generated_samples
from autotune.workloads.graph import StepGraph, Tensor, whole_of
from autotune.workloads.micro_batches import own_part
from autotune.workloads.references import dropout_mask

_BATCHES = 8
"""Batches of random numbers that steps are given in turn."""


def initial_values(graph: StepGraph, seed: int) -> dict[str, NDArray[Any]]:
    """Draws a value for each source tensor. The same graph and seed give the same values.

    Weights and biases are uniform in ``[-1/sqrt(fan_in), 1/sqrt(fan_in)]``, PyTorch's default for convolutions and
    fully connected layers (``kaiming_uniform_`` with ``a = sqrt(5)``). Data are standard normal, labels are random
    classes, and dropout masks are 0 or ``1 / (1 - p)``.

    Args:
        graph: The step.
        seed: Seed of the generator, not negative.

    Returns:
        Arrays by tensor name, in the tensors' shapes, float32 or int32.

    Raises:
        UsageError: ``seed`` is negative, or a source tensor has no `initial`.
    """
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", hint="use 0 or more")
    values = {}
    for tensor in graph.sources:
        generator = np.random.default_rng([seed, _number(tensor.name)])
        values[tensor.name] = tensor.stored(_draw(graph, tensor, _shape(tensor), generator))
    return values


def given_values(
    graph: StepGraph, images: NDArray[Any], labels: NDArray[Any], seed: int, step: int
) -> dict[str, NDArray[Any]]:
    """Makes the values that are given for each step: its data, its labels and its dropout masks.

    Args:
        graph: The step, whole or in micro-batches.
        images: [batch, c, h, w].
        labels: [batch], classes.
        seed: Seed of the masks, not negative.
        step: Number of the step, not negative. Each step has its own masks. They are drawn for the whole batch, so
            a step in micro-batches has the same masks.

    Returns:
        Arrays by tensor name, in their stored shape and order.
    """
    data = {
        tensor.name: own_part(graph, tensor, labels if tensor.kind == "label" else images)
        for tensor in graph.data
    }
    return data | random_values(graph, seed, step)


def generated_feeds(graph: StepGraph, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields what each step is given, without end, from generated data.

    A classifier gets samples that can be learned. Any other step gets a few batches of random numbers in turn, with
    random numbers of its own, such as dropout masks, for each step.

    Args:
        graph: The step.
        seed: Seed of everything, not negative.

    Returns:
        Tensor name -> array in its stored shape and order.
    """
    if graph.classifies:
        count = max(64, 2 * graph.batch)
        samples = generated_samples(count, graph.sample_shape, graph.classes, seed)
        for number, (images, labels) in enumerate(batches(samples, graph.batch, seed)):
            yield given_values(graph, images, labels, seed, number)
    for number in itertools.count():
        data = _drawn(graph, graph.data, seed, number % _BATCHES)
        yield data | random_values(graph, seed, number)


def random_values(graph: StepGraph, seed: int, step: int) -> dict[str, NDArray[Any]]:
    """Draws the random numbers that a step takes beside its data, such as dropout masks.

    Args:
        graph: The step.
        seed: Seed of the numbers, not negative.
        step: Number of the step, not negative.

    Returns:
        Tensor name -> array in its stored shape and order.
    """
    data = {tensor.name for tensor in graph.data}
    inputs = (tensor for tensor in graph.tensors if tensor.kind in ("input", "label"))
    return _drawn(graph, (one for one in inputs if one.name not in data), seed, step)


def _drawn(
    graph: StepGraph, tensors: Iterable[Tensor], seed: int, step: int
) -> dict[str, NDArray[Any]]:
    """Draws inputs. Micro-batches get their shares of the whole batch, so that all forms get the same numbers."""
    values: dict[str, NDArray[Any]] = {}
    whole: dict[str, NDArray[Any]] = {}
    for tensor in tensors:
        name, shape = whole_of(tensor.name)[0], _shape(tensor)
        if not shape or shape[0] * graph.parts != graph.batch:
            generator = _generator(seed, step, tensor.name)
            values[tensor.name] = tensor.stored(_draw(graph, tensor, shape, generator))
            continue
        if name not in whole:
            generator = _generator(seed, step, name)
            whole[name] = _draw(graph, tensor, (graph.batch, *shape[1:]), generator)
        values[tensor.name] = own_part(graph, tensor, whole[name])
    return values


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Returns a tensor's shape as the model defines it."""
    return tensor.layout.shape if tensor.layout else tensor.shape


def _generator(seed: int, step: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, step, _number(name)])


def _number(name: str) -> int:
    return zlib.crc32(name.encode())


def _draw(
    graph: StepGraph, tensor: Tensor, shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    if tensor.initial is None:
        raise UsageError(
            f"step graph {graph.name!r}: {tensor.kind} {tensor.name!r} does not say how it starts",
            hint="set Tensor.initial",
        )
    value = tensor.initial.value
    draws: dict[str, Callable[[], NDArray[Any]]] = {
        "uniform": lambda: generator.uniform(-value, value, shape),
        "normal": lambda: generator.normal(0.0, value, shape),
        "constant": lambda: np.full(shape, value),
        "classes": lambda: generator.integers(0, int(value), shape),
        "noise": lambda: generator.normal(0.0, value, shape),
        "mask": lambda: dropout_mask(generator, shape, value),
    }
    dtype = np.int32 if tensor.dtype == "int32" else np.float32
    return draws[tensor.initial.distribution]().astype(dtype)
