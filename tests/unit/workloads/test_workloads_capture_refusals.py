"""What cannot be captured is refused in one line that names the operator, the place and the way out."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import Step
from autotune.errors import UsageError
from autotune.workloads import capture, capture_module

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

SHAPE = (3, 6, 6)


class Forward(nn.Module):
    """A linear layer on the features that a function of (module, x) computes."""

    def __init__(self, features: Callable[[Any, Any], Any], **layers: Any) -> None:
        super().__init__()
        self.features = features
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.fc = nn.Linear(3, 4)
        self.register_buffer("counter", torch.zeros(1))
        self.register_buffer("shift", torch.zeros(2, 3, 6, 6))

    def forward(self, x: Any) -> Any:
        return self.fc(self.features(self, x).mean((2, 3)))


def forward(features: Callable[[Any, Any], Any], **layers: Any) -> Callable[[], Any]:
    """A factory for it."""
    return lambda: Forward(features, **layers)


def deciding(_: Any, x: Any) -> Any:
    return x + x if x.sum() > 0 else x


def typed(dtype: Any) -> Callable[[], Any]:
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(108, 4)).to(dtype)


def compiled() -> Any:
    with warnings.catch_warnings(action="ignore"):
        return torch.compile(nn.Sequential(nn.Flatten(), nn.Linear(108, 4)))


def scripted() -> Any:
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(108, 4)))


def hooked_parameter() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    model[1].weight.register_hook(lambda dy: 2 * dy)
    return model


def hooked_module() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    model[1].register_full_backward_hook(lambda *_: None)
    return model


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(108, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(x.flatten(1)), x


class Whole(Pair):
    """A function of a linear layer and its input."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.fc, x.flatten(1))


def dead(layer: Any) -> Any:
    """The layer with outputs so low that a ReLU passes nothing on."""
    nn.init.constant_(layer.bias, -1e4)
    return layer


def no_grad(module: Any, x: Any) -> Any:
    with torch.no_grad():
        return module(x)


def autocast(module: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module.c(x).float()


def step_of(classes: int, loss: Any) -> Step:
    labels = torch.zeros(2, dtype=torch.int64)
    return Step(nn.Linear(12, classes), torch.zeros(2, 12), labels, loss)


def quantized() -> Any:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


class Named(Pair):
    def forward(self, x: Any) -> Any:
        return {"logits": self.fc(x.flatten(1))}


class TwoInputs(Pair):
    def forward(self, x: Any, y: Any) -> Any:
        return self.fc((x + y).flatten(1))


REFUSALS: list[tuple[str, Callable[[], Any], tuple[str, ...]]] = [
    ("counter read", forward(lambda m, x: m.n(x) + m.n.num_batches_tracked, n=nn.BatchNorm2d(3)),
     ("the buffer n.num_batches_tracked counts steps",)),
    ("data-dependent", forward(deciding),
     ("needs the value of a tensor, which no tracing has: `return x + x if x.sum() > 0 else x`, line ",
      "test_workloads_capture_refusals.py", "torch.where, not `if`")),
    ("value", forward(lambda m, x: x * x.max().item()),
     ("needs the value of a tensor, which no tracing has: `(\"value\"", "no .item()")),
    ("list", forward(lambda m, x: x + torch.tensor(x.tolist())),
     ("needs the value of a tensor, which no tracing has: `(\"list\"", ".tolist()")),
    ("chosen rows", forward(lambda m, x: x[x > 0]),
     ("makes a tensor whose size depends on the data: `(\"chosen rows\"", "select with torch.where")),
    ("fails", forward(lambda m, x: torch.from_numpy(x.numpy())), ("forward fails", "at `(\"fails\"",)),
    ("half", forward(lambda m, x: x.half().float()),
     ("makes float16", "of test_workloads_capture_refusals.py")),
    ("autocast", forward(autocast, c=nn.Conv2d(3, 3, 3)),
     ("line ", "of test_workloads_capture_refusals.py", "makes bfloat16")),
    ("fft", forward(lambda m, x: torch.fft.fft2(x).abs()),
     ("line ", "of test_workloads_capture_refusals.py makes complex64")),
    ("no loss", lambda: Step(Pair(), torch.zeros(2, 108)), ("returns tuple, and no loss", "give Step a loss")),
    ("data parallel", lambda: nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(108, 4))),
     ("the model is wrapped by nn.DataParallel", "return model.module")),
    ("compiled", compiled, ("the model is wrapped by torch.compile",)),
    ("scripted", scripted, ("is wrapped by torch.jit.script",)),
    ("one class", lambda: nn.Sequential(nn.Flatten(), nn.Linear(108, 1)),
     ("one class", "nothing would be learnt")),
    ("hook on a parameter", hooked_parameter, ("the parameter 1.weight has a hook",)),
    ("hook on a module", hooked_module, ("1 has a hook on its gradient",)),
    ("double", typed(torch.float64), ("1.weight is float64", "model.float()")),
    ("meta", lambda: typed(torch.float32)().to("meta"), ("lies on device meta",)),
    ("lazy", lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), ("1.weight has no shape",)),
    ("norm without momentum", forward(lambda m, x: m.n(x), n=nn.BatchNorm2d(3, momentum=None)),
     ("batch norm n", "momentum=None")),
    ("max pool dilated", forward(lambda m, x: m.p(x), p=nn.MaxPool2d(2, dilation=2)),
     ("(aten.max_pool2d_with_indices.default in p) is dilated",)),
    ("two results", Pair, ("something other than one tensor", "[n, classes]")),
    ("named result", Named, ("something other than one tensor",)),
    ("classes", lambda: Whole(lambda fc, x: fc(x).argmax(1)),
     ("forward returns int64, which has no gradient", "leave argmax")),
    ("two inputs", TwoInputs, ("fails on an input of shape (2, 3, 6, 6)",)),
    ("other shape", lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 2)),
     ("fails on an input of shape (2, 3, 6, 6)", "--input-shape")),
    ("no gradient", lambda: Whole(lambda fc, x: no_grad(fc, x)),
     ("no parameter that trains: fc runs under torch.no_grad()", ".detach()")),
    ("detached", lambda: Whole(lambda fc, x: fc(x).detach()),
     ("no parameter that trains", ".detach()")),
    ("constant loss", lambda: Whole(lambda fc, x: 0 * fc(x)),
     ("the gradient of every parameter is 0", "nothing would be learnt")),
    # The gradients of equal logits cancel, but for rounding.
    ("equal logits", lambda: Whole(lambda fc, x: fc(x).mean(1, keepdim=True).expand(-1, 10)),
     ("the gradient of every parameter is 0", "nothing would be learnt")),
    ("equal large logits", lambda: Whole(lambda fc, x: 1e3 * fc(x).sum(1, keepdim=True).repeat(1, 7)),
     ("the gradient of every parameter is 0",)),
    ("dead", lambda: nn.Sequential(nn.Flatten(), dead(nn.Linear(108, 4)), nn.ReLU()),
     ("the gradient of every parameter is 0",)),
    ("one class in a step", lambda: step_of(1, nn.functional.cross_entropy),
     ("the gradient of every parameter is 0", "binary_cross_entropy_with_logits")),
    ("one class, smoothed", lambda: step_of(1, nn.CrossEntropyLoss(label_smoothing=0.1)),
     ("the gradient of every parameter is 0",)),
    ("quantized", quantized, ("which is no tensor", "before it is quantized")),
    ("other device", forward(lambda m, x: x.cuda()), ("forward fails", "leave .cuda() and .to(device) out")),
    ("numpy", forward(lambda m, x: torch.from_numpy(x.numpy())), ("not with numpy",)),
    ("nothing to train", nn.Flatten, ("no parameter that trains",)),
    ("not a module", lambda: 3, ("net: this is not a torch.nn.Module",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "parts"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_refusals_are_one_clear_line(
    make: Callable[[], Any], parts: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        given = make()
        shape = None if isinstance(given, Step) else SHAPE
        capture_module(given, 2, input_shape=shape, name="net")
    text = str(caught.value)
    for part in parts:
        assert part in text
    assert "\n" not in text
    assert len(text) < 700
    assert caught.value.hint
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        (None, "--input-shape 3x32x32"),
        ((1,) * 8, "(1, 1, 1, 1, 1, 1, 1, 1) is not one to 7 sizes"),
        ((3, 0, 6), "is not one to 7 sizes"),
        ("3x6x6", "is not one to 7 sizes"),
        ((3, 100_000, 100_000), "(2, 3, 100000, 100000) has more than 2147483647 elements"),
    ],
)
def test_input_shapes_that_are_missing_or_malformed(shape: Any, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        capture_module(nn.Sequential(nn.Flatten(), nn.Linear(108, 4)), 2, input_shape=shape)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batches_start_at_1() -> None:
    with pytest.raises(UsageError, match="batch=0 is too small"):
        capture_module(nn.Flatten(), 0, input_shape=SHAPE)


FILE = """
import torch
VALUE = 3
def number():
    return 3
def failing():
    raise ValueError("first line\\nsecond line")
def leaving():
    raise SystemExit(7)
def demanding(classes):
    return torch.nn.Flatten()
"""


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        ("", "does not name a function"),
        ("net.py", "write path/to/file.py:function"),
        (":make", "does not name a function"),
        ("net.py:", "does not name a function"),
        ("{folder}/none.py:make", "there is no file"),
        ("{folder}/net.py:make", "has no function 'make'"),
        ("{folder}/net.py:numbr", "did you mean 'number'?"),
        ("{folder}/net.py:VALUE", "has no callable 'VALUE'"),
        ("{folder}/net.py:number", "number() returned int, not a torch.nn.Module"),
        (
            "{folder}/net.py:failing",
            "failing() raised ValueError: first line second line at `raise ValueError(",
        ),
        ("{folder}/net.py:leaving", "leaving() raised SystemExit: 7"),
        ("{folder}/net.py:demanding", "missing 1 required positional argument"),
        ("{folder}/broken.py:make", "broken.py raised SyntaxError"),
        ("{folder}/needy.py:make", "raised ModuleNotFoundError: No module named 'no_such_package'"),
        ("no_such_package.nets:make", "there is no Python module 'no_such_package.nets'"),
        ("needy_for_capture:make", "importing needy_for_capture raised ModuleNotFoundError"),
        ("broken_for_capture:make", "importing broken_for_capture raised SyntaxError"),
        (".relative:make", "relative"),
    ],
)
def test_references_that_lead_nowhere(
    reference: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(FILE)
    for name in ("needy.py", "needy_for_capture.py"):
        (tmp_path / name).write_text("import no_such_package")
    for name in ("broken.py", "broken_for_capture.py"):
        (tmp_path / name).write_text("def make(:")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError) as caught:
        capture(reference.format(folder=tmp_path), 2, input_shape=SHAPE)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_without_torch_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def make(): return None")
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from autotune.errors import UsageError\n"
        "from autotune.workloads import capture\n"
        "try:\n    capture(sys.argv[1] + '/net.py:make', 2)\n"
        "except UsageError as error:\n    print(error.exit_code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("2 a model of your own needs PyTorch, which is not installed")
    assert f"{sys.executable} -m pip install 'torch>=2.13,<3'" in done.stdout


def test_small_gradients_that_are_not_rounding_errors_are_learnt_from() -> None:
    small = Whole(lambda fc, x: 1e-6 * fc(x))
    assert capture_module(small, 2, input_shape=SHAPE).graph.parameters
    step = step_of(3, lambda y, labels: 1e-7 * nn.functional.cross_entropy(y, labels))
    assert capture_module(step, 2).graph.parameters


def test_hints_fit_the_type_that_is_made() -> None:
    for function, hint in (
        (lambda m, x: torch.fft.fft2(x).abs(), "complex numbers"),
        (autocast, "torch.autocast"),
        (lambda m, x: x.double().float(), "leave the conversion out"),
    ):
        with pytest.raises(UsageError) as caught:
            capture_module(forward(function, c=nn.Conv2d(3, 3, 3))(), 2, input_shape=SHAPE)
        assert hint in caught.value.hint
        assert "_to_copy" not in str(caught.value)


def test_gradients_that_are_not_finite_on_example_values_are_not_called_0() -> None:
    divided = Whole(lambda fc, x: fc(x) / x.abs().sum().clamp(max=0.0))
    assert capture_module(divided, 2, input_shape=SHAPE).graph.parameters
