"""Training steps of transformers, whole and with LoRA: right, and how fast beside PyTorch.

Tunes each model of Hugging Face's transformers with `autotune kernels` for this processor, or takes finished runs
from --runs. Then compares the tuned step with PyTorch's on the same values and data: the losses of 20 steps, the
time of a step in interleaved blocks, and the peak memory. PyTorch runs eagerly, with scaled_dot_product_attention,
and under torch.compile. Values are random. Needs torch 2.13.0, transformers 5.24.0 and peft 0.21.2.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from common.bars import Report, mean_ratio, positive, run
from common.module_comparison import Comparison, compare, run_of
from common.pytorch import torch

from autotune.compiler.target.host import kernel_threads
from autotune.measurement import Interval
from autotune.workloads import Optimizer, TrainingStep

MODELS = {
    "bert-tiny": ("hf:bert-tiny,seq=128", 8),
    "distilbert": ("hf:distilbert,seq=128", 4),
    "deit-tiny": ("hf:deit-tiny", 8),
    "gpt2-s128": ("hf:gpt2,seq=128", 1),
    "gpt2-s512": ("hf:gpt2,seq=512", 1),
    "gpt2-lora-s128": ("hf:gpt2,seq=128,lora=8", 1),
    "gpt2-lora-s512": ("hf:gpt2,seq=512,lora=8", 1),
    "qwen3-0.6b-lora": ("hf:qwen3-0.6b,seq=128,lora=8", 1),
}
"""Model and batch size by name."""
QUICK = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 1,
    "n_head": 2, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
"""Configuration of the model of a smoke run."""
OPTIMIZER = "adamw:learning_rate=0.0001"


def bars_of(report: Report, found: dict[str, Comparison]) -> None:
    """Adds the bars over all models."""
    sides: dict[str, tuple[float, float, dict[str, Interval]]] = {
        "PyTorch eager": (1.5, 1.0, {name: one.eager for name, one in found.items()}),
        "torch.compile": (
            1.2, 0.9, {name: one.compiled for name, one in found.items() if one.compiled is not None}
        ),
    }  # fmt: skip
    for side, (least_mean, least, gains) in sides.items():
        if not gains:
            continue
        mean, ends = mean_ratio(list(gains.values()))
        report.bar(
            f"against {side}, geometric mean of {len(gains)}", mean, "at least", least_mean, "x", interval=ends
        )  # fmt: skip
        slowest = min(gains, key=lambda name: gains[name].estimate)
        report.bar(
            f"against {side}, slowest: {slowest}", gains[slowest].estimate, "at least", least, "x",
            interval=(gains[slowest].low, gains[slowest].high),
        )  # fmt: skip
    memory = {name: one.memory for name, one in found.items() if "lora" in name or report.quick}
    if memory:
        largest = max(memory, key=lambda name: memory[name])
        report.bar(
            f"LoRA's peak memory over PyTorch's, largest: {largest}", memory[largest], "at most", 0.6, "x"
        )  # fmt: skip
    mean_memory = float(np.exp(np.mean([np.log(one.memory) for one in found.values()])))
    report.row(what="peak memory over PyTorch's, geometric mean", ratio=mean_memory)


def _smoke(folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(QUICK))
    return f"hf:{folder},seq=8,lora=2"


def measure(report: Report) -> None:
    options = report.options
    torch.set_num_threads(kernel_threads())
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory() as logs:
        models = {"smoke": (_smoke(Path(logs)), 2)} if report.quick else MODELS
        for name in options.models or models:
            model, batch = models[name]
            wanted = TrainingStep(model, batch, optimizer=Optimizer.parse(OPTIMIZER))
            tuned = run_of(report, wanted, (options.runs or Path(logs)) / name, options.trials)
            # A smoke run of models.py compiles a module, which takes as long as all the rest.
            compiled = not (options.no_compile or report.quick)
            found[name] = compare(report, name, wanted, tuned, layouts=False, compiled=compiled)
    bars_of(report, found)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        metavar="MODEL",
        help=f"only these of {', '.join(MODELS)}",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="keep runs here, DIR/MODEL/RUN, and take finished ones",
    )
    parser.add_argument(
        "--trials", type=positive(int), default=1000, help="of each model [default: 1000]"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
