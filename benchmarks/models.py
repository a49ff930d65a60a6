"""Training steps of the models in examples/: right, and how fast beside PyTorch.

Tunes each model with `autotune kernels` for this processor, or takes finished runs from --runs. Then compares the
tuned step with PyTorch's on the same weights and data: the losses of 20 steps, the time of a step in interleaved
blocks (PyTorch eager in both layouts, torch.compile), and the peak memory. With --transfer, only the last blocks of
MobileNetV2 and ResNet-18 train; with --frozen-eval, their frozen layers are in evaluation mode on both sides. Needs
torch 2.13.0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
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
from autotune.workloads import TrainingStep
from autotune.workloads.capture.user_step import FROZEN_EVAL

EXAMPLES = Path(__file__).parents[1] / "examples"
MODELS = {
    "cifar_nets.py": (
        "densenet_40_12", "resnet_50", "squeezenet", "vgg_16", "xception", "inception_v1", "alexnet", "resnet_18",
    ),
    "sequences.py": ("char_cnn", "ds_cnn", "sensors", "lstm", "gru"),
    "steps.py": ("dcgan", "deep_q", "unet"),
    "mobile_nets.py": ("mobilenet_v3_small", "efficientnet_lite0", "shufflenet_v2"),
}  # fmt: skip
TRANSFER = {
    "resnet_18": ("layers.7.*", "layers.8.*", "layers.9.*"),
    "mobilenet_v2": ("layers.16.*", "layers.17.*", "layers.18.*", "layers.22.*"),
}
"""Parameters of the last two blocks and of what follows them."""
QUICK = ("sensors",)
BATCH = 4


def step_of(name: str, *, transfer: bool, frozen_eval: bool = False) -> TrainingStep:
    """Returns the training step of a model."""
    files = {one: file for file, names in MODELS.items() for one in names}
    file = files.get(name, "mobile_nets.py")
    train = TRANSFER[name] if transfer else ()
    train += (FROZEN_EVAL,) if frozen_eval else ()
    return TrainingStep(f"{EXAMPLES / file}:{name}", BATCH, train=train)


def folder_of(name: str, wanted: TrainingStep) -> str:
    """Returns the folder of a step's runs."""
    kind = "-frozen-eval" if FROZEN_EVAL in wanted.train else "-transfer"
    return f"{name}{kind}" if wanted.train else name


def bars_of(report: Report, found: dict[str, Comparison], transfer: bool) -> None:
    """Adds the bars over all models."""
    eager = {name: one.eager for name, one in found.items()}
    if transfer:
        slowest_bar(
            report, "training the last blocks against PyTorch eager's faster layout", eager, 2
        )
        largest = max(one.memory for one in found.values())
        report.bar("largest peak memory over PyTorch's", largest, "at most", 0.5, "x")
        return
    mean_bar(report, "against PyTorch eager's faster layout", eager, 1.5)
    slowest_bar(report, "against PyTorch eager's faster layout", eager, 1)
    compiled = {name: one.compiled for name, one in found.items() if one.compiled is not None}
    if compiled:
        mean_bar(report, "against torch.compile", compiled, 1.3)
    report.bar(
        "peak memory over PyTorch's, geometric mean", mean_memory(found.values()), "at most", 0.8, "x"
    )  # fmt: skip


def measure(report: Report) -> None:
    options = report.options
    transfer = options.transfer or options.frozen_eval
    known = list(TRANSFER) if transfer else [name for names in MODELS.values() for name in names]
    names = options.models or (QUICK if report.quick and not transfer else known)
    torch.set_num_threads(kernel_threads())
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory() as logs:
        for name in names:
            wanted = step_of(name, transfer=transfer, frozen_eval=options.frozen_eval)
            folder = (options.runs or Path(logs)) / folder_of(name, wanted)
            tuned = run_of(report, wanted, folder, options.trials)
            found[name] = compare(report, name, wanted, tuned, compiled=not options.no_compile)
    bars_of(report, found, transfer)


def add_own_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, sorted({*TRANSFER, *(name for some in MODELS.values() for name in some)}))
    parser.add_argument("--transfer", action="store_true", help="train the last blocks alone")
    parser.add_argument(
        "--frozen-eval", action="store_true", help="the same, with frozen layers in evaluation mode"
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_own_options))
