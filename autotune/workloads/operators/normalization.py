"""Batch normalisation in training: statistics of the batch, the layer itself, and running averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import UsageError
from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec, in_layout


@dataclass(frozen=True)
class BatchStats(Operator):
    """Mean and biased variance of each channel over batch and pixels, float32.

    forward: ``x[n,c,s] -> mean[c], variance[c]``. Its gradient is part of ``BatchNorm``'s.

    Attributes:
        n: Batch.
        c: Channels.
        s: Pixels, height times width.
        channels_last: Layout of ``x``: [n,s,c].

    Raises:
        UsageError: On construction, if a size is below 1, or there is only one value per channel.
    """

    name: ClassVar[str] = "batch_stats"

    n: int
    c: int
    s: int
    channels_last: bool = False

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward``."""
        return ("forward",)

    def label(self) -> str:
        """Returns a text such as ``n8c32s12544``."""
        return f"n{self.n}c{self.c}s{self.s}{'_nhwc' if self.channels_last else ''}"

    def _check_shapes(self) -> None:
        if self.n * self.s < 2:
            raise UsageError(
                "batch_stats: one value a channel has no variance",
                hint="use a batch of at least 2, or a larger input",
            )

    def _signature(self, role: Role) -> Signature:
        return Signature(
            (TensorSpec("x", in_layout(self.channels_last, self.n, self.c, self.s)),),
            (TensorSpec("mean", (self.c,)), TensorSpec("variance", (self.c,))),
        )

    def _flops(self, role: Role) -> int:
        return 4 * self.n * self.c * self.s


@dataclass(frozen=True)
class BatchNorm(Operator):
    """Batch normalisation by the batch's own statistics, then optionally ReLU or ReLU6; float32.

    With ``xhat = (x - mean) / sqrt(variance + epsilon)``, and ``dz`` the gradient before the activation, which is
    ``dy`` where ``y > 0`` (and ``y < 6``), otherwise 0 (Ioffe and Szegedy, ICML 2015):

    - forward: ``x[n,c,s], mean[c], variance[c], gamma[c], beta[c] -> y = act(gamma * xhat + beta)``;
    - weight_grad: ``x, mean, variance, [y,] dy -> dgamma[c] = sum(dz * xhat), dbeta[c] = sum(dz)``;
    - data_grad: ``x, mean, variance, gamma, dgamma, dbeta, [y,] dy ->
      dx = gamma / sqrt(variance + epsilon) * (dz - dbeta / (n s) - xhat * dgamma / (n s))``.

    ``y`` is an operand of the gradients only if there is an activation.

    Attributes:
        n: Batch.
        c: Channels.
        s: Pixels, height times width.
        epsilon_millionths: Value that is added to the variance, times a million.
        relu: Whether a ReLU follows.
        relu6: Whether a ReLU6 follows.
        channels_last: Layout of the wide operands: [n,s,c].

    Raises:
        UsageError: On construction, if a size is below 1, or both activations are set.
    """

    name: ClassVar[str] = "batch_norm"

    n: int
    c: int
    s: int
    epsilon_millionths: int = 10
    relu: bool = False
    relu6: bool = False
    channels_last: bool = False

    @property
    def epsilon(self) -> float:
        """Value that is added to the variance."""
        return self.epsilon_millionths * 1e-6

    @property
    def activated(self) -> bool:
        """Whether an activation follows."""
        return self.relu or self.relu6

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward``, ``data_grad`` and ``weight_grad``."""
        return ("forward", "data_grad", "weight_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c32s12544e10_relu6``."""
        activation = "_relu" if self.relu else "_relu6" if self.relu6 else ""
        layout = "_nhwc" if self.channels_last else ""
        return f"n{self.n}c{self.c}s{self.s}e{self.epsilon_millionths}{activation}{layout}"

    def _check_shapes(self) -> None:
        if self.relu and self.relu6:
            raise UsageError("batch_norm: relu and relu6 exclude each other", hint="choose one")

    def _signature(self, role: Role) -> Signature:
        wide = in_layout(self.channels_last, self.n, self.c, self.s)
        x, y, dy = TensorSpec("x", wide), TensorSpec("y", wide), TensorSpec("dy", wide)
        channel = {
            name: TensorSpec(name, (self.c,))
            for name in ("mean", "variance", "gamma", "beta", "dgamma", "dbeta")
        }
        statistics = (x, channel["mean"], channel["variance"])
        incoming = (y, dy) if self.activated else (dy,)
        if role == "forward":
            return Signature((*statistics, channel["gamma"], channel["beta"]), (y,))
        sums = (channel["dgamma"], channel["dbeta"])
        if role == "weight_grad":
            return Signature((*statistics, *incoming), sums)
        return Signature(
            (*statistics, channel["gamma"], *sums, *incoming), (TensorSpec("dx", wide),)
        )

    def _flops(self, role: Role) -> int:
        values = self.n * self.c * self.s
        if role == "forward":
            return values * (5 if self.relu6 else 4 if self.relu else 3)
        return values * ((5 if role == "weight_grad" else 6) + self.activated)


@dataclass(frozen=True)
class RunningStats(Operator):
    """Running averages of a batch normalisation's statistics, with unbiased variance; float32.

    update: ``running_mean[c], running_variance[c], mean[c], variance[c], momentum[1] -> new_mean, new_variance``,
    where ``new = (1 - momentum) * running + momentum * batch``. The batch's variance is multiplied by
    ``samples / (samples - 1)``, as in PyTorch.

    Attributes:
        c: Channels.
        samples: Values per channel in a batch: batch times pixels.

    Raises:
        UsageError: On construction, if a size is below 1, or there is only one sample.
    """

    name: ClassVar[str] = "running_stats"

    c: int
    samples: int

    def roles(self) -> tuple[Role, ...]:
        """Returns ``update``."""
        return ("update",)

    def label(self) -> str:
        """Returns a text such as ``c32m100352``."""
        return f"c{self.c}m{self.samples}"

    def _check_shapes(self) -> None:
        if self.samples < 2:
            raise UsageError(
                "running_stats: one sample has no variance", hint="use samples of at least 2"
            )

    def _signature(self, role: Role) -> Signature:
        channel = (self.c,)
        names = ("running_mean", "running_variance", "mean", "variance")
        return Signature(
            (*(TensorSpec(name, channel) for name in names), TensorSpec("momentum", (1,))),
            (TensorSpec("new_mean", channel), TensorSpec("new_variance", channel)),
        )

    def _flops(self, role: Role) -> int:
        return 7 * self.c
