"""Training steps of transformers, whole and with LoRA: right, and how fast beside PyTorch.

Tunes each model of Hugging Face's transformers with `autotune kernels` for this processor, or takes finished runs
from --runs. Then compares the tuned step with PyTorch's on the same values and data: the losses of 20 steps, the
time of a step in interleaved blocks, and the peak memory. PyTorch runs eagerly, with scaled_dot_product_attention,
and under torch.compile. Values are random. Needs torch 2.13.0, transformers 5.24.0 and peft 0.21.2.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from common.bars import Report, mean_bar, run, slowest_bar
from common.module_comparison import (
    Comparison,
    add_options,
    compare,
    mean_memory,
    run_of,
)
from common.pytorch import torch

from autotune.compiler.target.host import kernel_threads
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
    eager = {name: one.eager for name, one in found.items()}
    mean_bar(report, "against PyTorch eager", eager, 1.5)
    slowest_bar(report, "against PyTorch eager", eager, 1)
    compiled = {name: one.compiled for name, one in found.items() if one.compiled is not None}
    if compiled:
        mean_bar(report, "against torch.compile", compiled, 1.2)
        slowest_bar(report, "against torch.compile", compiled, 0.9)
    memory = {name: one.memory for name, one in found.items() if "lora" in name or report.quick}
    if memory:
        largest = max(memory, key=lambda name: memory[name])
        report.bar(
            f"LoRA's peak memory over PyTorch's, largest: {largest}", memory[largest], "at most", 0.6, "x"
        )  # fmt: skip
    whole = mean_memory(found.values())
    report.row(what="peak memory over PyTorch's, geometric mean", ratio=whole)


def _smoke(folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(QUICK))
    return f"hf:{folder},seq=8,lora=2"


def measure(report: Report) -> None:
    options = report.options
    torch.set_num_threads(kernel_threads())
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory() as logs:
        models = MODELS | {"smoke": (_smoke(Path(logs)), 2)}
        for name in options.models or (["smoke"] if report.quick else MODELS):
            model, batch = models[name]
            wanted = TrainingStep(model, batch, optimizer=Optimizer.parse(OPTIMIZER))
            tuned = run_of(report, wanted, (options.runs or Path(logs)) / name, options.trials)
            # A smoke run of models.py compiles a module, which takes as long as all the rest.
            compiled = not (options.no_compile or report.quick)
            found[name] = compare(report, name, wanted, tuned, layouts=False, compiled=compiled)
    bars_of(report, found)


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, partial(add_options, models=MODELS)))
