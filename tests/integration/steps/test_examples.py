"""The models in examples/ become steps."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from autotune.workloads import StepForm, TrainingStep

EXAMPLES = Path(__file__).parents[3] / "examples"
FORM = StepForm("channels_last")
FEW = {
    "cifar_nets.py": ("alexnet", "squeezenet"),
    "mobile_nets.py": (),
    "sequences.py": ("sensors", "ds_cnn"),
    "steps.py": ("deep_q", "unet", "dcgan"),
}
MORE = {
    "cifar_nets.py": (
        "densenet_40_12", "resnet_18", "resnet_50", "vgg_16", "xception", "inception_v1",
    ),
    "mobile_nets.py": ("mobilenet_v2", "mobilenet_v3_small", "efficientnet_lite0", "shufflenet_v2"),
    "sequences.py": ("char_cnn", "lstm", "gru"),
    "steps.py": (),
}  # fmt: skip
NAMES = [
    *(pytest.param(file, name, id=name) for file, names in FEW.items() for name in names),
    *(
        pytest.param(file, name, id=name, marks=pytest.mark.exhaustive)
        for file, names in MORE.items()
        for name in names
    ),
]


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_an_example_is_captured(file: str, name: str) -> None:
    graph = TrainingStep(f"{EXAMPLES / file}:{name}", 2).graph(FORM)
    assert graph.parameter_count > 1000
    assert {node.kernel.role for node in graph.nodes} >= {"forward", "weight_grad", "data_grad"}


def test_every_example_is_in_the_lists() -> None:
    for file in EXAMPLES.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name in (*FEW[file.name], *MORE[file.name]):
            assert f"def {name}(" in text
