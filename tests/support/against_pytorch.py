"""A captured step beside PyTorch's own, both in float64."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.workloads import (
    Optimizer,
    StepGraph,
    capture_module,
    evaluate,
    generated_feeds,
    initial_values,
)
from autotune.workloads.capture import wanted_step
from autotune.workloads.fusion import fused

RATE = 0.125


def captured(
    given: Any, batch: int, *, channels_last: bool, **options: Any
) -> tuple[StepGraph, dict[str, Any]]:
    """The fused step of a module or step, and a value for each source."""
    found = capture_module(
        given,
        batch,
        optimizer=Optimizer(learning_rate=RATE),
        name="net",
        channels_last=channels_last,
        **options,
    )
    graph = fused(found.graph)
    stored = {name: graph.by_name[name].stored(value) for name, value in found.values.items()}
    return graph, initial_values(graph, 1) | stored | next(generated_feeds(graph, 1))


def distance(given: Any, batch: int, *, channels_last: bool, **options: Any) -> float:
    """How far loss, gradients and buffers of a captured step are from PyTorch's, beside the largest of each."""
    return compared(given, batch, channels_last=channels_last, **options)[0]


def compared(
    given: Any, batch: int, *, channels_last: bool, **options: Any
) -> tuple[float, StepGraph]:
    """The same distance, and the captured step."""
    graph, values = captured(given, batch, channels_last=channels_last, **options)
    from common.module_step import given_masks  # It imports PyTorch.

    module = getattr(given, "module", given)
    before = copy.deepcopy(module.state_dict())
    results = evaluate(graph, values)
    wanted = wanted_step("net", given, batch, options.get("input_shape"), options.get("train", ()))
    plain = {name: graph.by_name[name].restored(value) for name, value in values.items()}
    module.double()
    try:
        with given_masks(plain):
            loss, gradients = _eager(wanted, plain)
        worst = _far(results[graph.loss], loss)
        for name, gradient in gradients.items():
            new = graph.by_name[graph.updates[name]]
            after = graph.by_name[name].restored(results[new.name])
            worst = max(worst, _far((plain[name] - after) / RATE, gradient, 1e-4))
        for name, tensor in module.named_buffers():
            if name in graph.updates:
                worst = max(worst, _far(results[graph.updates[name]], tensor.numpy()))
    finally:
        module.float()
        module.load_state_dict(before)
    return worst, graph


def _eager(wanted: Any, plain: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    import torch

    def tensors(examples: Mapping[str, Any]) -> list[Any]:
        return [
            torch.as_tensor(  # The step has no input that the loss does not depend on.
                plain.get(name, like),
                dtype=torch.float64 if like.is_floating_point() else like.dtype,
            ).reshape(like.shape)
            for name, like in examples.items()
        ]

    arguments, named = wanted.arguments(tensors(wanted.inputs))
    loss = wanted.loss(wanted.module(*arguments, **named), *tensors(wanted.labels))
    trained = {n: p for n, p in wanted.module.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    return loss.detach().numpy(), {
        name: gradient.numpy()
        for name, gradient in zip(trained, found, strict=True)
        if gradient is not None
    }


def _far(found: Any, wanted: Any, floor: float = 0.0) -> float:
    """The largest difference, beside the largest value."""
    wanted = np.asarray(wanted, np.float64)
    difference = np.abs(np.asarray(found, np.float64).reshape(wanted.shape) - wanted)
    largest = max(float(np.abs(wanted).max(initial=0.0)), floor, 1e-9)
    return float(difference.max(initial=0.0)) / largest
