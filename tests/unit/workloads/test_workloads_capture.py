"""Captured modules against PyTorch's own autograd and optimisers, in float64."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import Step
from autotune.errors import UsageError
from autotune.jobs.steps import StepData
from autotune.workloads import (
    Optimizer,
    StepForm,
    StepGraph,
    TrainingStep,
    capture,
    capture_module,
    evaluate,
    formed,
    given_values,
    initial_values,
)

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

TOLERANCE = 1e-9
STEPS = 3
GRADIENT_OPERAND = {"sgd": 1, "momentum": 2, "adam": 3}


class Residual(nn.Module):
    """A residual block whose one ReLU module is used twice, in place, after batch norm and after the sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding="same", bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


class Cnn(nn.Module):
    """Batch norm, residual sums, five joined branches, every pooling, dropout, functional layers."""

    input_shape = (3, 13, 11)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        )
        self.block = Residual(4)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.avg = nn.AvgPool2d(2, stride=1, padding=1)
        self.branch = nn.Conv2d(4, 3, 1)
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(18, 5)

    def forward(self, x: Any) -> Any:
        x = self.block(self.stem(x))
        side = F.relu6(self.branch(x))
        x = torch.cat([x, side, x, F.relu(side + side), x + x], 1)
        x = nn.Identity()(F.adaptive_avg_pool2d(self.avg(self.pool(x)), 1))
        return self.head(self.dropout(torch.cat([x], 1).view(x.size(0), -1)))


class Depthwise(nn.Module):
    """Depthwise and grouped filters, kernels that are not square, dilation, ReLU6 in place."""

    input_shape = (4, 12, 9)

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 8, (3, 1), stride=(2, 1), padding=(1, 0), groups=2, bias=False),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.2),
            nn.ReLU6(inplace=True),
            nn.Conv2d(8, 8, (3, 2), padding=(2, 1), dilation=(2, 1), groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardtanh(0.0, 6.0, inplace=True),
            nn.Conv2d(8, 6, 1),
            nn.ReLU6(),
        )
        self.classifier = nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x).mean([-1, -2]))


class Vectors(nn.Module):
    """Features without height and width."""

    input_shape = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(5, 7)
        self.out = nn.Linear(7, 4)

    def forward(self, x: Any) -> Any:
        return self.out(F.relu(self.hidden(x)))


class Sequences(nn.Module):
    """Positions with features, which a convolution slides over."""

    input_shape = (6, 5)

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Conv2d(1, 3, (3, 5))
        self.out = nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        return self.out(F.relu(self.window(x.unsqueeze(1))).flatten(1))


class Mlp(nn.Module):
    """Fully connected layers with batch norm, dropout, a layer used twice and a tied weight."""

    input_shape = (1, 4, 3)

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(12, 7, bias=False)
        self.norm = nn.BatchNorm1d(7)
        self.drop = nn.Dropout(0.25)
        self.twice = nn.Linear(7, 7)
        self.tied = nn.Linear(7, 7)
        self.tied.weight = self.twice.weight
        self.out = nn.Parameter(torch.randn(6, 7))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.fc1(x.reshape(x.shape[0], -1))))
        x = self.twice(F.relu(self.twice(self.drop(x))))
        return F.linear(self.tied(x).relu(), self.out)


class Aliases(nn.Module):
    """In-place operations that are seen through views, and results in place that nobody takes."""

    input_shape = (2, 5, 6)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.fc = nn.Linear(48, 5)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        flat = y.flatten(1)
        flat += flat
        y.relu_()
        copied = F.adaptive_avg_pool2d(y, (3, 4))
        copied += copied
        return self.fc(y.view(x.shape[0], -1)) + self.fc(copied.flatten(1)) + self.fc(flat)


class Divided(nn.Module):
    """Adaptive pooling to a size that divides the input's, and squeezed pixels."""

    input_shape = (2, 6, 8)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding="same")
        self.pool = nn.AdaptiveAvgPool2d((3, 2))
        self.last = nn.Conv2d(3, 4, (3, 2), padding="valid")

    def forward(self, x: Any) -> Any:
        x = self.last(self.pool(F.max_pool2d(self.conv(x), 3, stride=1, padding=1)))
        return x.squeeze(-1).squeeze(-1)


class Unchanged(nn.Module):
    """What does nothing to float32 on the processor: conversions, copies, products with 1. A copy changes apart."""

    input_shape = (2, 5, 6)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.fc = nn.Linear(48, 5)

    def forward(self, x: Any) -> Any:
        x = (
            x.float() if x.dtype == torch.float32 else x
        )  # Its twin in float64 has nothing to convert.
        y = self.conv(x.contiguous().to("cpu").to(x.dtype).type_as(x))
        copied = y.clone()
        copied += y
        z = (copied.relu_() * 1 + 0.0) / 1.0 - 0
        return self.fc(z.flatten(1)) + self.fc((y * 1.0).flatten(1))


OPTIMIZERS = (
    Optimizer(learning_rate=0.05),
    Optimizer("momentum", learning_rate=0.05, momentum=0.8),
    Optimizer("adam", learning_rate=0.003, beta1=0.85, beta2=0.99, epsilon=1e-7),
)


def torch_optimizer(optimizer: Optimizer, parameters: Any) -> Any:
    """PyTorch's counterpart."""
    if optimizer.algorithm == "adam":
        betas = (optimizer.beta1, optimizer.beta2)
        return torch.optim.Adam(
            parameters, lr=optimizer.learning_rate, betas=betas, eps=optimizer.epsilon
        )
    momentum = optimizer.momentum if optimizer.algorithm == "momentum" else 0.0
    return torch.optim.SGD(parameters, lr=optimizer.learning_rate, momentum=momentum)


def double_values(graph: StepGraph, seed: int) -> dict[str, Any]:
    """First values in float64, without the float32 rounding of constants and masks."""
    values = {}
    for name, value in initial_values(graph, seed).items():
        initial = graph.by_name[name].initial
        assert initial is not None
        if initial.distribution == "constant":
            value = np.full(value.shape, initial.value)
        elif initial.distribution == "mask":
            value = np.where(value > 0, 1 / (1 - initial.value), 0.0)
        values[name] = value if value.dtype == np.int32 else value.astype(np.float64)
    return values


def assert_close(found: Any, expected: Any, what: str) -> None:
    """Compares with the largest value of the tensor as the scale."""
    expected = expected.detach().numpy()
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, (what, error)


def follow_masks(module: Any, values: dict[str, Any]) -> None:
    """Makes the module's dropout layers multiply by the step's masks."""
    for name in [name for name in values if name.endswith(".mask")]:
        layer = module.get_submodule(name.removesuffix(".mask"))
        layer.register_forward_hook(
            lambda _, inputs, __, name=name: inputs[0] * torch.from_numpy(values[name])
        )


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.algorithm)
@pytest.mark.parametrize(
    "model", [Cnn, Depthwise, Mlp, Vectors, Sequences, Aliases, Divided, Unchanged]
)
def test_three_steps_are_those_of_pytorch(model: Any, optimizer: Optimizer) -> None:
    torch.manual_seed(7)
    module = model()
    before = copy.deepcopy(module.state_dict())
    captured = capture_module(module, 3, optimizer=optimizer)
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    graph = captured.graph
    values = double_values(graph, 3) | dict(captured.values)
    twin = copy.deepcopy(module).double().train()
    follow_masks(twin, values)
    trained = dict(twin.named_parameters())
    assert {tensor.name for tensor in graph.parameters} == set(trained)
    torchs = torch_optimizer(optimizer, twin.parameters())
    generator = np.random.default_rng(5)
    for _ in range(STEPS):
        values["input"] = generator.normal(size=values["input"].shape)
        step = evaluate(graph, values)
        torchs.zero_grad()
        logits = twin(torch.from_numpy(values["input"]))
        loss = F.cross_entropy(logits, torch.from_numpy(values["labels"]).long())
        loss.backward()
        torchs.step()
        assert_close(step["loss"], loss.reshape(1), "loss")
        gradients = {
            node.inputs[0]: node.inputs[GRADIENT_OPERAND[node.kernel.operator.name]]
            for node in graph.nodes
            if node.kernel.operator.name in GRADIENT_OPERAND
        }
        for name, parameter in trained.items():
            assert_close(step[gradients[name]], parameter.grad, f"gradient of {name}")
            assert_close(step[graph.updates[name]], parameter, name)
        for name, buffer in twin.named_buffers():
            if not name.endswith("num_batches_tracked"):
                assert_close(step[graph.updates[name]], buffer, name)
        values |= {old: step[new] for old, new in graph.updates.items()}


def test_names_and_values_are_those_of_the_state_dict() -> None:
    module = Cnn()
    captured = capture_module(module, 2)
    state = module.state_dict()
    assert set(captured.values) == {n for n in state if not n.endswith("num_batches_tracked")}
    for name, value in captured.values.items():
        assert value.dtype == np.float32
        assert value.shape == captured.graph.by_name[name].shape
        np.testing.assert_array_equal(value, state[name].numpy())
    sources = {tensor.name for tensor in captured.graph.sources}
    assert sources - set(captured.values) >= {"input", "labels", "dropout.mask", "learning_rate"}
    assert module.training


def test_values_are_copies() -> None:
    module = Mlp()
    captured = capture_module(module, 2)
    kept = captured.values["fc1.weight"].copy()
    with torch.no_grad():
        module.fc1.weight.add_(1)
    np.testing.assert_array_equal(captured.values["fc1.weight"], kept)


def test_relu_is_part_of_the_layer_before_it_where_nothing_else_reads_that() -> None:
    graph = capture_module(Cnn(), 2).graph
    forward = [n for n in graph.nodes if n.kernel.role == "forward"]
    norms = [n.kernel.name for n in forward if n.kernel.operator.name == "batch_norm"]
    assert [name.endswith("_relu") for name in norms] == [True, True, False]
    relus = [n.place for n in forward if n.kernel.operator.name == "relu"]
    assert relus == ["block.relu", "relu6", "relu"]


def test_places_are_the_modules_paths() -> None:
    graph = capture_module(Mlp(), 2).graph
    places = [n.place for n in graph.nodes if n.kernel.operator.name == "matmul"]
    assert places[:5] == ["fc1", "twice", "twice_2", "tied", "linear"]
    updated = [n.place for n in graph.nodes if n.kernel.operator.name == "sgd"]
    assert "out" in updated


def test_a_module_that_is_called_like_a_tensor_of_the_step() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.input = nn.Conv2d(1, 2, 3)
            self.add = nn.Conv2d(2, 2, 1)
            self.loss = nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            x = self.input(x)
            return self.loss((x + self.add(x)).mean((2, 3)))

    captured = capture_module(Odd(), 2, input_shape=(1, 5, 5))
    assert set(captured.values) == set(Odd().state_dict())
    assert np.isfinite(
        evaluate(captured.graph, initial_values(captured.graph, 0), ["loss"])["loss"]
    )


FILE = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Sizes:
    hidden: "int" = 4

def small():
    sizes = Sizes()
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, sizes.hidden), nn.ReLU(), nn.Linear(sizes.hidden, 3))
    model.input_shape = (3, 2, 2)
    return model

class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x.flatten(1))
"""


def test_a_factory_in_a_file_or_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nets_for_capture.py"
    path.write_text(FILE)
    captured = capture(f"{path}:small", 4, optimizer=Optimizer("adam"))
    assert captured.graph.name == "small"
    assert captured.graph.batch == 4
    assert captured.graph.by_name["input"].shape == (4, 3, 2, 2)
    assert captured.graph.parameter_count == 12 * 4 + 4 + 4 * 3 + 3
    monkeypatch.syspath_prepend(tmp_path)
    again = capture("nets_for_capture:Bare", 2, input_shape=(1, 2, 2))
    assert set(again.values) == {"fc.weight", "fc.bias"}


def test_modules_beside_a_factorys_file_or_in_the_working_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_factory.py").write_text("HIDDEN = 5\n")
    body = FILE.replace(
        'hidden: "int" = 4', 'hidden: "int" = __import__("beside_the_factory").HIDDEN'
    )
    (tmp_path / "with_sibling.py").write_text(body)
    monkeypatch.setattr(sys, "path", [*sys.path])
    parameters = 12 * 5 + 5 + 5 * 3 + 3
    captured = capture(f"{tmp_path / 'with_sibling.py'}:small", 2)
    assert captured.graph.parameter_count == parameters
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    assert capture("with_sibling:small", 2).graph.parameter_count == parameters


class Named(nn.Module):
    """Layers with the names of an optimiser's settings and of a part of a batch."""

    input_shape = (2, 4, 4)

    def __init__(self) -> None:
        super().__init__()
        self.learning_rate = nn.Conv2d(2, 3, 3)
        self.momentum = nn.ModuleDict({"a#2": nn.Dropout(0.5), "b": nn.Linear(12, 4)})

    def forward(self, x: Any) -> Any:
        x = self.learning_rate(x).relu().flatten(1)
        return self.momentum["b"](self.momentum["a#2"](x))


def test_layers_may_have_the_names_of_constants_and_parts() -> None:
    captured = capture_module(Named(), 2, optimizer=Optimizer("momentum"))
    graph = formed(captured.graph, StepForm("channels_last", 2, 2))
    images, labels = np.zeros((4, 2, 4, 4), np.float32), np.zeros(4, np.int32)
    given = given_values(graph, images, labels, 1, 0)
    masks = [name for name in given if ".mask" in name]
    assert len(masks) == 2
    assert not np.array_equal(given[masks[0]], given[masks[1]])
    values = initial_values(graph, 1) | given
    assert np.isfinite(evaluate(graph, values, [graph.loss])[graph.loss]).all()


def test_forms_and_first_values_of_a_users_model(tmp_path: Path) -> None:
    """Batch norm on features needs two samples a part; the seed draws the parameters."""
    (tmp_path / "normed.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))\n"
        "    model.input_shape = (3, 2, 2)\n"
        "    return model\n"
    )
    wanted = TrainingStep(f"{tmp_path / 'normed.py'}:make", 4)
    assert {form.micro_batches for form, _ in wanted.forms("channels_first")} == {1, 2}
    graph = wanted.graph(StepForm())
    first, again, other = (wanted.values(graph, seed)["1.weight"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    with pytest.raises(UsageError):
        next(TrainingStep(wanted.model, 1).forms("channels_first"))


def test_integers_are_drawn_from_all_places_that_they_index() -> None:
    """The examples are zeros, which say nothing of the vocabulary or of the classes."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.fc = nn.Embedding(50, 8), nn.Linear(8, 30)

        def forward(self, words: Any) -> Any:
            return self.fc(self.rows(words)).transpose(1, 2)

    words = torch.zeros(2, 7, dtype=torch.int64)
    graph = capture_module(Step(Words(), words, words, nn.functional.cross_entropy), 2).graph
    assert {t.name: t.initial.value for t in graph.data if t.initial} == {"input": 50, "labels": 30}


def test_floats_that_become_indices_are_drawn_and_read_as_whole_numbers(tmp_path: Path) -> None:
    class Words(nn.Module):
        input_shape = (7,)

        def __init__(self) -> None:
            super().__init__()
            self.rows, self.fc = nn.Embedding(20, 6), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(self.rows(x.long()).mean(1))

    graph = capture_module(Words(), 2).graph
    drawn = next(StepData(None).feeds(graph, 1))["input"]
    assert drawn.dtype == np.float32
    assert not np.any(drawn % 1)
    assert 0 <= drawn.min() < drawn.max() < 20
    data = tmp_path / "words.npz"
    given = np.arange(28).reshape(4, 7)
    np.savez(data, inputs=given % 20, labels=np.arange(4) % 3)
    assert set(next(StepData(data).feeds(graph, 1))["input"].ravel()) <= set(range(20))
    for wrong, line in (
        (given, "reaches from 0 to 27"),
        (given - 9, "from -9"),
        (given / 2, "float64"),
    ):
        np.savez(data, inputs=wrong, labels=np.arange(4) % 3)
        with pytest.raises(UsageError, match=line):
            next(StepData(data).feeds(graph, 1))


@pytest.mark.parametrize(
    "normed", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm]
)
def test_buffers_that_a_step_writes_and_never_reads(normed: Any) -> None:
    module = nn.Sequential(normed(nn.Conv2d(3, 4, 3)), nn.Flatten(), nn.Linear(64, 5))
    graph = capture_module(module, 2, input_shape=(3, 6, 6)).graph
    written = {
        name for name in graph.updates if name.startswith("0.") and name[-2:] in ("_u", "_v")
    }
    assert len(written) == 2
