"""Peak memory of PyTorch's training step, measured in its own process so that nothing else is counted."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

from autotune.compiler.step.step_worker import HighWater
from autotune.workloads import StepBuilder, build_model, initial_values
from autotune.workloads.capture.torch_step import TorchStep
from common.pytorch import torch

STEPS = 4


def warm_up() -> None:
    """Trains a tiny net, so that libraries and thread pools start before the measurement, as on our side."""
    builder = StepBuilder("tiny", 2, (3, 16, 16))
    x = builder.conv("conv", builder.input, 8, 3, pad=1, bias=False)
    x = builder.max_pool("pool", builder.batch_norm("norm", x, relu=True), 2, stride=2)
    x = builder.conv("grouped", x, 8, 3, pad=1, groups=8, relu=True)
    graph = builder.finish(builder.linear("fc", builder.flatten(x), 4))
    values = initial_values(graph, 1)
    step = TorchStep(graph, values)
    for _ in range(3):
        step.step(values["input"], values["labels"], {})


def main(model: str, batch: int, threads: int) -> None:
    """Prints the growth of this process in bytes at the peak of some steps, over its size before the model."""
    torch.set_num_threads(threads)
    graph = build_model(model, batch)
    values = initial_values(graph, 1)
    masks = {name: array for name, array in values.items() if name.endswith(".mask")}
    warm_up()
    gc.collect()
    high_water = HighWater()
    step = TorchStep(graph, values)
    for _ in range(STEPS):
        step.step(values["input"], values["labels"], masks)
    print(json.dumps({"peak_bytes": high_water.bytes()}))


def torch_peak(model: str, batch: int, threads: int) -> int:
    """Returns the peak memory of PyTorch's step in bytes, measured in a new process."""
    code = f"from common import torch_peak; torch_peak.main({model!r}, {batch}, {threads})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    return int(json.loads(done.stdout)["peak_bytes"])
