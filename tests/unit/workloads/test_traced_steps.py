"""Steps that PyTorch traces whole, beside PyTorch's own in float64: loss, every gradient, every buffer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from against_pytorch import captured, distance

from autotune.errors import UsageError
from autotune.workloads import Step, StepGraph, capture_module, tasks

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

SHAPE = (3, 6, 6)
TOLERANCE = 1e-6
"""Constants of PyTorch's operators are rounded to float32 in places."""


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


def counting(module: Any, x: Any) -> Any:
    module.counter.add_(1)
    return x


def assigning(module: Any, x: Any) -> Any:
    module.counter = module.counter + 1
    return x


def wasteful(_: Any, x: Any) -> Any:
    torch.sigmoid(x)
    return x


def wasteful_layer(module: Any, x: Any) -> Any:
    F.relu(x)
    return x


def untaught(_: Any, x: Any) -> Any:
    with torch.no_grad():
        return x + x


def inferring(module: Any, x: Any) -> Any:
    with torch.inference_mode():
        return module.c(x)


@torch.inference_mode()
def decorated(module: Any, x: Any) -> Any:
    return module.c(x)


def frozen() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    model[1].bias.requires_grad_(False)
    return model


def frozen_norm(module: Any, x: Any) -> Any:
    module.norm.eval()
    return module.norm(x)


def tied_norms() -> Any:
    norms = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    norms[1].weight = norms[0].weight
    return nn.Sequential(*norms, nn.Flatten(), nn.Linear(108, 4))


def autocast(module: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        return F.relu(x)


class LastOf(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, rnn: Any) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Any) -> Any:
        return self.rnn(x.flatten(2))[0][:, -1]


class Reversed(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return F.relu(x)

    @staticmethod
    def backward(_: Any, dy: Any) -> Any:
        return -dy


def hooked(module: Any, x: Any) -> Any:
    y = module.c(x)
    y.register_hook(lambda dy: 2 * dy)
    return y


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(108, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(x.flatten(1)), x


class Mixing(Pair):
    def forward(self, x: Any) -> Any:
        return self.fc(x.flatten(1).view(1, 2, 108).view(2, 108))


MODULES: list[tuple[str, Callable[[], Any]]] = [
    ("softmax", forward(lambda m, x: m.attn(x), attn=nn.Softmax(1))),
    ("nested", lambda: nn.Sequential(nn.Sequential(nn.GELU()), nn.Flatten(), nn.Linear(108, 4))),
    ("own forward", forward(lambda m, x: x * 2)),
    ("turned view", forward(
        lambda m, x: F.elu(torch.maximum((x + m.p[1]).unflatten(-1, (3, 2)).transpose(2, 3), m.p[0])).flatten(3),
        p=nn.ParameterList([nn.Parameter(torch.zeros(6, 1)), nn.Parameter(torch.randn(6))]))),
    ("add a number", forward(lambda m, x: x + 1)),
    ("add scaled", forward(lambda m, x: torch.add(x, x, alpha=2))),
    ("add broadcast", forward(lambda m, x: x + x.mean((2, 3), keepdim=True))),
    ("add a buffer", forward(lambda m, x: x + m.shift)),
    ("constant", forward(lambda m, x: x + torch.ones(2, 3, 6, 6))),
    ("buffer in place", forward(counting)),
    ("buffer assigned", forward(assigning)),
    ("unused", forward(wasteful)),
    ("unused layer", forward(wasteful_layer)),
    ("no_grad", forward(untaught)),
    ("inference mode", forward(inferring, c=nn.Conv2d(3, 3, 1))),
    ("decorated", forward(decorated, c=nn.Conv2d(3, 3, 1))),
    ("detach", forward(lambda m, x: x.detach())),
    ("autocast", forward(autocast)),
    ("lstm", lambda: LastOf(nn.LSTM(36, 4, batch_first=True))),
    ("gru", lambda: LastOf(nn.GRU(36, 4, batch_first=True))),
    ("backward of its own", forward(lambda m, x: Reversed.apply(m.c(x)), c=nn.Conv2d(3, 3, 1))),
    ("hook", forward(hooked, c=nn.Conv2d(3, 3, 1))),
    ("frozen", frozen),
    ("unused parameter", forward(lambda m, x: x, spare=nn.Linear(2, 2))),
    (
        "norm without statistics",
        forward(lambda m, x: m.n(x), n=nn.BatchNorm2d(3, track_running_stats=False)),
    ),
    ("norm without weight", forward(lambda m, x: m.n(x), n=nn.BatchNorm2d(3, affine=False))),
    ("norm in evaluation", forward(frozen_norm, norm=nn.BatchNorm2d(3))),
    ("norm twice", forward(lambda m, x: m.n(m.n(x)), n=nn.BatchNorm2d(3))),
    ("tied norms", tied_norms),
    ("norm epsilon", forward(lambda m, x: m.n(x), n=nn.BatchNorm2d(3, eps=1e-7))),
    ("hardtanh", forward(lambda m, x: m.h(x), h=nn.Hardtanh())),
    ("dropout of channels", forward(lambda m, x: m.d(x), d=nn.Dropout2d())),
    ("dropout of everything", forward(lambda m, x: m.d(x), d=nn.Dropout(1.0))),
    ("max pool indices", forward(lambda m, x: m.p(x)[0], p=nn.MaxPool2d(2, return_indices=True))),
    ("average rounded up", forward(lambda m, x: m.p(x), p=nn.AvgPool2d(4, ceil_mode=True))),
    (
        "average without padding",
        forward(lambda m, x: m.p(x), p=nn.AvgPool2d(2, padding=1, count_include_pad=False)),
    ),
    ("average by a number", forward(lambda m, x: m.p(x), p=nn.AvgPool2d(2, divisor_override=3))),
    ("adaptive", forward(lambda m, x: m.p(x), p=nn.AdaptiveAvgPool2d(4))),
    ("mean of channels", forward(lambda m, x: x + x.mean(1, keepdim=True))),
    ("cat of pixels", forward(lambda m, x: torch.cat([x, x], 2))),
    (
        "reflected padding",
        forward(lambda m, x: m.c(x), c=nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")),
    ),
    ("lopsided padding", forward(lambda m, x: m.c(x), c=nn.Conv2d(3, 3, 2, padding="same"))),
    (
        "computed weight",
        forward(
            lambda m, x: F.conv2d(x, m.c.weight + m.c.weight), c=nn.Conv2d(3, 3, 1, bias=False)
        ),
    ),
    ("linear on pixels", forward(lambda m, x: m.l(x), l=nn.Linear(6, 6))),
    ("images", lambda: nn.Conv2d(3, 3, 1)),
    ("mixed samples", Mixing),
    # PyTorch's pooling to one pixel keeps the layout of its input by a strided view.
    ("pooled, channels last", forward(
        lambda m, x: m.p((x.permute(0, 2, 3, 1) * 2).permute(0, 3, 1, 2)) * x, p=nn.AdaptiveAvgPool2d(1))),
    ("strided view", forward(
        lambda m, x: m.c(x).as_strided((2, 3, 2, 2), (108, 36, 12, 2), 7), c=nn.Conv2d(3, 3, 1))),
    ("windows", forward(lambda m, x: m.c(x).unfold(2, 3, 2).unfold(3, 2, 1).mean((4, 5)), c=nn.Conv2d(3, 3, 1))),
    ("windows that leave gaps", forward(lambda m, x: m.c(x).unfold(3, 2, 3).tanh().sum(4), c=nn.Conv2d(3, 3, 1))),
    ("turned strided view", forward(
        lambda m, x: m.c(x).as_strided((2, 3, 3, 2), (108, 1, 7, 24), 4), c=nn.Conv2d(3, 3, 1))),
]  # fmt: skip


@pytest.mark.parametrize("make", [row[1] for row in MODULES], ids=[row[0] for row in MODULES])
def test_a_modules_step_is_pytorchs(make: Callable[[], Any]) -> None:
    torch.manual_seed(1)
    module = make()
    for channels_last in (False, True):
        far = distance(module, 2, channels_last=channels_last, input_shape=SHAPE)
        assert far < TOLERANCE, channels_last


class Tokens(nn.Module):
    """Named arguments, integers, a bilinear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8, padding_idx=0)
        self.line = nn.Linear(8, 6)
        self.both = nn.Bilinear(6, 3, 2)

    def forward(self, ids: Any, x: Any, scale: Any) -> Any:
        return self.both(self.line(self.words(ids)).mean(1), x) * scale


class Dueling(nn.Module):
    """Values and advantages of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 8, 4)
        self.value = nn.Linear(128, 1)
        self.advantage = nn.Linear(128, 5)

    def forward(self, x: Any) -> Any:
        hidden = F.relu(self.conv(x)).flatten(1)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(1, keepdim=True)


class QLearning(nn.Module):
    """A network and its frozen target; the module returns the loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = Dueling(), Dueling().requires_grad_(False)

    def forward(self, before: Any, after: Any, action: Any, reward: Any) -> Any:
        with torch.no_grad():
            best = reward + 0.99 * self.target(after).max(1).values
        chosen = self.online(before).gather(1, action[:, None])[:, 0]
        return F.smooth_l1_loss(chosen, best)


class Looked(nn.Module):
    """Rows of large tables, many of them several times: an embedding whose weight is the head's, and a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 24, padding_idx=3)
        self.places = nn.Embedding(40, 24)
        self.line = nn.Linear(24, 24)
        self.head = nn.Linear(24, 300, bias=False)
        self.head.weight = self.words.weight
        self.grid = nn.Parameter(torch.randn(20, 15, 2, 12))

    def forward(self, ids: Any, rows: Any, columns: Any) -> Any:
        means = self.grid[rows - 20, :, 1].mean(2)
        found = self.grid[rows, columns].flatten(2) * torch.cat([means, means], 2)
        there = ids.ne(3).int()
        found = found + self.places(there.cumsum(1) * there + 1)
        return self.head(torch.tanh(self.line(self.words(ids)) + found))


class Labelled(nn.Module):
    """Its result has the loss beside other things, in an object or a dict, if there are labels."""

    def __init__(self, result: Callable[..., Any]) -> None:
        super().__init__()
        self.line, self.result = nn.Linear(5, 3), result

    def forward(self, x: Any, labels: Any = None) -> Any:
        scores = self.line(x)
        loss = None if labels is None else F.cross_entropy(scores, labels)
        return self.result(loss=loss, scores=scores)


class Unet(nn.Module):
    """Transposed convolution, interpolation, normalisations by sample."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)
        self.groups = nn.GroupNorm(2, 4)
        self.mode = mode

    def forward(self, x: Any) -> Any:
        y = F.silu(self.norm(self.down(x)))
        return self.groups(self.up(y)) + F.interpolate(y[:, :4], scale_factor=2, mode=self.mode)


class Attention(nn.Module):
    """Causal self-attention and two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm, self.rms, self.head = nn.LayerNorm(16), nn.RMSNorm(16), nn.Linear(16, 7)

    def forward(self, x: Any) -> Any:
        mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
        y = self.attention(x, x, x, attn_mask=mask)[0]
        return self.head(self.rms(self.norm(y)) * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1))


class Odd(nn.Module):
    """Weight norm, dilation, groups, paddings, einsum, norms, stacks."""

    def __init__(self) -> None:
        super().__init__()
        conv = nn.Conv2d(3, 6, 3, padding=(1, 2), dilation=(1, 2), groups=3)
        self.conv = nn.utils.parametrizations.weight_norm(conv)
        self.prelu, self.query = nn.PReLU(6), nn.Parameter(torch.randn(6, 1, 1))

    def forward(self, x: Any) -> Any:
        y = F.pad(self.prelu(self.conv(x)), (1, 2, 0, 1), mode="replicate")
        z = torch.einsum("nchw,ndhw->ncd", y, y * self.query)
        joined = torch.stack([z.amax(2), z.std(2), torch.cumsum(z, 1)[:, :, 0]], 0).sum(0)
        return F.softplus(z).logsumexp(2) + joined + z.norm(dim=2) + F.normalize(z, dim=1).sum(2)


class OneAxis(nn.Module):
    """Convolutions along one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(4, 6, 5, 2, 1)
        self.each, self.head = nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y = F.max_pool1d(F.hardswish(self.each(F.gelu(self.up(x)))), 2)
        return self.head(F.avg_pool1d(y, 2).mean(-1))


class Recurrent(nn.Module):
    """Two layers in both directions."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(14, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(x)[0].mean(1))


class Variational(nn.Module):
    """An autoencoder that returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        mean, log = self.encode(x).chunk(2, 1)
        rebuilt = torch.sigmoid(self.decode(mean + torch.exp(log / 2)))
        divergence = -0.5 * (1 + log - mean.pow(2) - log.exp()).mean()
        return F.binary_cross_entropy(rebuilt, torch.sigmoid(x)) + divergence


def tokens_loss(logits: Any, labels: Any) -> Any:
    return F.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1), ignore_index=2)


def divergence(logits: Any, wanted: Any) -> Any:
    return F.kl_div(F.log_softmax(logits, 1), wanted.softmax(1), reduction="batchmean")


def normal(*sizes: int) -> Any:
    return torch.randn(*sizes)


def classes(count: int, *sizes: int) -> Any:
    return torch.arange(torch.Size(sizes).numel()).reshape(sizes) % count


STEPS: list[tuple[str, Callable[[], Step]]] = [
    ("named inputs", lambda: Step(
        Tokens(), {"ids": torch.tensor([[1, 0, 3], [4, 49, 0]]), "x": normal(2, 3), "scale": normal(2, 1)},
        normal(2, 2).sigmoid(), F.binary_cross_entropy_with_logits)),
    ("q learning", lambda: Step(
        QLearning(), (normal(3, 4, 20, 20), normal(3, 4, 20, 20), torch.tensor([0, 4, 2]), normal(3)))),
    ("unet nearest", lambda: Step(Unet("nearest"), normal(2, 3, 8, 8), normal(2, 4, 8, 8), F.mse_loss)),
    ("unet bilinear", lambda: Step(Unet("bilinear"), normal(2, 3, 8, 8), normal(2, 4, 8, 8), F.l1_loss)),
    ("attention", lambda: Step(Attention(), normal(3, 6, 16), classes(7, 3, 6), tokens_loss)),
    ("odd", lambda: Step(Odd(), normal(2, 3, 6, 7), normal(2, 6), F.huber_loss)),
    ("one axis", lambda: Step(OneAxis(), normal(2, 4, 9), classes(3, 2), F.cross_entropy)),
    ("lstm", lambda: Step(Recurrent(nn.LSTM), normal(2, 4, 5), classes(3, 2), F.cross_entropy)),
    ("gru", lambda: Step(Recurrent(nn.GRU), normal(2, 4, 5), normal(2, 3), F.mse_loss)),
    ("rnn", lambda: Step(
        Recurrent(nn.RNN, nonlinearity="relu"), normal(2, 4, 5), normal(2, 3), divergence)),
    ("variational", lambda: Step(Variational(), normal(4, 12))),
    ("cosine", lambda: Step(
        nn.Linear(5, 6), normal(4, 5), (normal(4, 6), torch.ones(4)), F.cosine_embedding_loss)),
    ("triplet", lambda: Step(
        nn.Linear(5, 6), normal(4, 5), (normal(4, 6), normal(4, 6)), F.triplet_margin_loss)),
    ("last layer", lambda: Step(
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)), normal(4, 5), classes(4, 4), F.cross_entropy,
        ("last:1",))),
    ("pixels", lambda: Step(nn.Conv2d(3, 4, 1), normal(2, 3, 4, 4), classes(4, 2, 4, 4), F.cross_entropy)),
    ("decoder", lambda: Step(
        nn.TransformerDecoderLayer(16, 2, 32, 0.0, batch_first=True), (normal(2, 5, 16), normal(2, 4, 16)),
        normal(2, 5, 16), F.mse_loss)),
    ("rows of large tables", lambda: Step(
        Looked(), {"ids": classes(7, 5, 4) + 1, "rows": classes(20, 5, 4), "columns": classes(15, 5, 4)},
        classes(300, 20).view(5, 4), lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))),
    ("loss in an object", lambda: Step(
        Labelled(SimpleNamespace), {"x": normal(4, 5), "labels": classes(3, 4)})),
    ("loss in a dict", lambda: Step(Labelled(dict), {"x": normal(4, 5), "labels": classes(3, 4)})),
    ("activations", lambda: Step(
        nn.Sequential(
            nn.Linear(5, 8), nn.CELU(), nn.Mish(), nn.GLU(), nn.Tanhshrink(), nn.Softsign(), nn.LogSigmoid(),
            nn.Hardsigmoid(), nn.Softplus(), nn.SELU(), nn.Hardshrink(), nn.Threshold(0.1, 0.2)),
        normal(4, 5), normal(4, 4), F.mse_loss)),
    ("shuffles", lambda: Step(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"), nn.PixelShuffle(2), nn.ChannelShuffle(2),
            nn.ReflectionPad2d(1), nn.ZeroPad2d((1, 0, 2, 0))),
        normal(2, 3, 4, 4), normal(2, 2, 12, 11), F.mse_loss)),
    ("unfold", lambda: Step(
        nn.Sequential(nn.Conv2d(2, 4, 1), nn.Unfold(3, padding=1), nn.Flatten(), nn.Linear(576, 3)),
        normal(2, 2, 4, 4), classes(3, 2), F.cross_entropy)),
]  # fmt: skip


class Shared(nn.Module):
    """A layer that two blocks hold, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        between = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), between) for _ in range(3))
        self.blocks[2][0].weight = self.blocks[0][0].weight

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("channels_last", [False, True])
def test_layers_and_weights_that_are_shared_are_pytorchs_and_stay(channels_last: bool) -> None:
    net = Shared()
    own = {
        path: (tensor, tensor.clone()) for path, tensor in net.state_dict(keep_vars=True).items()
    }
    step = Step(net, normal(4, 6), classes(6, 4), F.cross_entropy)
    captured(step, 4, channels_last=channels_last)
    for path, tensor in net.state_dict(keep_vars=True).items():
        assert tensor is own[path][0], path
        assert torch.equal(tensor, own[path][1]), path
    assert distance(step, 4, channels_last=channels_last) < TOLERANCE


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_bias_of_one_pixel_of_one_sample_has_a_gradient(channels_last: bool) -> None:
    net = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 5, 1), nn.Tanh(), nn.Conv2d(5, 4, 1), nn.Flatten()
    )
    step = Step(net, normal(1, 3, 4, 4), classes(4, 1), F.cross_entropy)
    assert distance(step, 1, channels_last=channels_last) < TOLERANCE


@pytest.mark.parametrize("make", [row[1] for row in STEPS], ids=[row[0] for row in STEPS])
def test_a_step_of_ones_own_is_pytorchs(make: Callable[[], Step]) -> None:
    torch.manual_seed(1)
    step = make()
    first = next(iter(step.inputs.values())) if isinstance(step.inputs, dict) else step.inputs
    batch = len(first[0] if isinstance(first, tuple) else first)
    for channels_last in (False, True):
        assert distance(step, batch, channels_last=channels_last) < TOLERANCE, channels_last


def frozen_base() -> Any:
    base = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten()
    )  # fmt: skip
    return nn.Sequential(base.requires_grad_(False), nn.Linear(288, 4))


def backward_of_convolutions(graph: StepGraph) -> int:
    return sum(
        n.kernel.operator.name == "conv2d" and n.kernel.role != "forward" for n in graph.nodes
    )


def test_a_frozen_part_has_no_backward_pass_and_is_not_updated() -> None:
    graph, _ = captured(frozen_base(), 2, channels_last=True, input_shape=SHAPE)
    assert backward_of_convolutions(graph) == 0
    assert [tensor.name for tensor in graph.parameters] == ["1.weight", "1.bias"]
    thawed, _ = captured(
        frozen_base().requires_grad_(),
        2,
        channels_last=True,
        input_shape=SHAPE,
        train=("0.2.*", "1.*"),
    )
    assert backward_of_convolutions(thawed) == 1
    assert {tensor.name for tensor in thawed.parameters} == {
        "0.2.weight",
        "0.2.bias",
        "1.weight",
        "1.bias",
    }


@pytest.mark.parametrize(("kind", "names"), [("decorated", "c.weight, c.bias"), ("frozen", "")])
def test_parameters_that_should_train_and_do_not_are_named(
    kind: str, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    captured(dict(MODULES)[kind](), 2, channels_last=False, input_shape=SHAPE)
    messages = [record.getMessage() for record in caplog.records]
    assert any(f"{names} are not trained" in text for text in messages) == bool(names)


def test_a_pattern_that_names_no_parameter_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no parameter matches 'haed\.\*'"):
        capture_module(frozen_base(), 2, input_shape=SHAPE, train=("haed.*",))
    with pytest.raises(UsageError, match="'last:0' names no layers"):
        capture_module(frozen_base(), 2, input_shape=SHAPE, train=("last:0",))


@pytest.mark.parametrize(
    ("step", "part"),
    [
        (lambda: Step(nn.Conv3d(2, 3, 2), normal(2, 2, 3, 3, 3), normal(2, 3, 2, 2, 2), F.mse_loss),
         "aten.convolution.default"),
        (lambda: Step(nn.EmbeddingBag(20, 6), classes(20, 2, 5), classes(6, 2), F.cross_entropy),
         "aten._embedding_bag.default in the step is not supported"),
        (lambda: Step(nn.Linear(3, 2), normal(2, 3).double(), normal(2, 2), F.mse_loss), "input is torch.float64"),
        (lambda: Step(nn.Linear(3, 2), normal(3, 3), normal(3, 2), F.mse_loss), "input has 3 samples"),
        (lambda: Step(nn.Linear(3, 2), normal(2, 3), normal(2, 2), lambda y, t: (y - t) ** 2),
         "the loss is not one number"),
        (lambda: Step(nn.Linear(3, 2), "x", normal(2, 2), F.mse_loss), "input is str, not a tensor"),
    ],
)  # fmt: skip
def test_what_a_step_cannot_have_is_named(step: Callable[[], Step], part: str) -> None:
    with pytest.raises(UsageError) as caught:
        capture_module(step(), 2, name="net")
    assert part in str(caught.value)
    assert caught.value.hint


def test_equal_layers_are_one_task_and_element_wise_work_joins_the_products() -> None:
    layers = [nn.Sequential(nn.Linear(16, 16), nn.SiLU()) for _ in range(4)]
    step = Step(nn.Sequential(*layers), normal(4, 16), normal(4, 16), F.mse_loss)
    graph, _ = captured(step, 4, channels_last=True)
    products = [task for task in tasks(graph) if task.kernel.operator.name == "matmul"]
    assert max(task.count for task in products) >= 3
    assert len(products) <= 6
    updates = [node for node in graph.nodes if node.kernel.replaces]
    assert all(node.kernel.operator.name in ("matmul", "bias") for node in updates)


def test_every_call_has_the_layer_that_it_belongs_to() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Flatten(), nn.Linear(64, 3))
    graph, _ = captured(net, 2, channels_last=True, input_shape=SHAPE)
    by_place = {node.place for node in graph.nodes if node.kernel.operator.name != "expr"}
    assert by_place == {"0", "3"}


def test_another_loss_on_the_same_module_is_another_step() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.Linear(6, 3))
    found = set()
    for scale in (1.0, 2.0, 3.0):
        step = Step(
            module, normal(4, 5), normal(4, 3), lambda y, t, by=scale: by * F.mse_loss(y, t)
        )
        found.add(capture_module(step, 4).graph)
        del step
    assert len(found) == 3
