"""A PyTorch module's training step as the other side of a benchmark: in a layout, a type, eager or compiled."""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.step.step_worker import HighWater
from autotune.workloads import StepGraph, TrainingStep, generated_feeds
from autotune.workloads.capture import ModuleStep
from common.pytorch import torch

Arrays = Mapping[str, NDArray[Any]]
STEPS = 4
_SEED = 1


class ModuleSide:
    """A step of the user's own module.

    Args:
        wanted: The step.
        values: First values of parameters and buffers in the module's own shapes; None for the factory's.
        dtype: Type of floats.
        last: Keep images and filters with channels last in memory.
        compiled: Compile the module with ``torch.compile``.
    """

    def __init__(
        self,
        wanted: TrainingStep,
        values: Arrays | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        last: bool = False,
        compiled: bool = False,
    ) -> None:
        own = wanted.users_own()
        own = replace(own, module=copy.deepcopy(own.module))
        if values is not None:
            known = own.module.state_dict()
            for name, value in values.items():
                if name in known:
                    known[name].copy_(torch.as_tensor(value).reshape(known[name].shape))
        own.module.to(dtype)
        if last:
            own.module.to(memory_format=torch.channels_last)
        module = torch.compile(own.module) if compiled else own.module
        self._dtype, self._last = dtype, last
        self._own = own
        self._step = ModuleStep(replace(own, module=module), wanted.optimizer)

    def step(self, given: Arrays) -> tuple[float, float]:
        """Trains on a batch; returns the loss, and the seconds without the preparation of the inputs."""
        tensors = {}
        for name, example in (*self._own.inputs.items(), *self._own.labels.items()):
            tensor = torch.as_tensor(given[name]).reshape(example.shape)
            if tensor.is_floating_point():
                tensor = tensor.to(self._dtype)
            if self._last and tensor.dim() == 4:
                tensor = tensor.contiguous(memory_format=torch.channels_last)
            tensors[name] = tensor
        start = time.perf_counter()
        loss = self._step.step(tensors)
        return loss, time.perf_counter() - start

    def parameters(self) -> dict[str, NDArray[np.float64]]:
        """Returns the present values of all parameters by name, in float64."""
        return {
            name: one.detach().double().numpy() for name, one in self._own.module.named_parameters()
        }


@contextmanager
def given_masks(given: Arrays) -> Iterator[None]:
    """While open, PyTorch's dropout multiplies by a step's own masks, in their order."""
    drawn = [value for name, value in given.items() if ".random" in name or name.endswith(".mask")]
    masks = iter(drawn)

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or not p:
            return x
        if p == 1:  # It draws nothing.
            return torch.zeros_like(x) * x
        mask = torch.as_tensor(next(masks), dtype=x.dtype)
        return x * (mask.reshape(x.shape) if mask.numel() == x.numel() else mask)  # One a channel.

    def attention(
        q: Any,
        k: Any,
        v: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if not dropout_p:
            return own_attention(
                q, k, v, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            k, v = (one.repeat_interleave(q.shape[-3] // one.shape[-3], -3) for one in (k, v))
        scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return dropout(scores.softmax(-1), dropout_p) @ v

    own_attention = torch.nn.functional.scaled_dot_product_attention
    with mock.patch.multiple(
        torch.nn.functional,
        dropout=dropout,
        dropout2d=dropout,
        scaled_dot_product_attention=attention,
    ):
        yield


def in_own_shapes(graph: StepGraph, values: Arrays) -> dict[str, NDArray[Any]]:
    """Returns values of a step's tensors in the shapes and the order of the module."""
    return {
        name: graph.by_name[name].restored(value)
        for name, value in values.items()
        if name in graph.by_name
    }


def _main(step: dict[str, Any], threads: int) -> None:
    torch.set_num_threads(threads)
    wanted = TrainingStep.from_json(step)
    warm = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 14 * 14, 4),
    )  # fmt: skip
    for _ in range(3):  # Libraries and thread pools start before the measurement, as on our side.
        torch.nn.functional.cross_entropy(
            warm(torch.zeros(2, 3, 16, 16)), torch.zeros(2).long()
        ).backward()
    feeds = generated_feeds(wanted.plain()[0], _SEED)
    given = [next(feeds) for _ in range(STEPS)]
    del warm
    gc.collect()
    ctypes.CDLL(None).malloc_trim(
        0
    )  # What the warm-up has freed would otherwise be used again, and not be counted.
    high_water = HighWater()
    side = ModuleSide(wanted)
    for one in given:
        side.step(one)
    print(json.dumps({"peak_bytes": high_water.bytes()}))


def module_peak(wanted: TrainingStep, threads: int) -> int:
    """Returns the peak memory of a module's steps in bytes, measured in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(wanted.to_json()), str(threads)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    return int(json.loads(done.stdout.splitlines()[-1])["peak_bytes"])


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), int(sys.argv[2]))
