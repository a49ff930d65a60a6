"""Steps with a loss of their own: DCGAN, deep Q-learning, segmentation with a U-Net.

autotune kernels --model examples/steps.py:dcgan --batch 8
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import autotune


class Generator(nn.Module):
    """Noise to images of 32x32 pixels (Radford et al., ICLR 2016)."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()

        def up(inputs: int, outputs: int, stride: int, pad: int) -> list[nn.Module]:
            conv = nn.ConvTranspose2d(inputs, outputs, 4, stride, pad, bias=False)
            return [conv, nn.BatchNorm2d(outputs), nn.ReLU(True)]

        self.layers = nn.Sequential(
            *up(noise, 4 * width, 1, 0), *up(4 * width, 2 * width, 2, 1), *up(2 * width, width, 2, 1),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Discriminator(nn.Module):
    """Images of 32x32 pixels to one logit."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def down(inputs: int, outputs: int) -> list[nn.Module]:
            conv = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
            return [conv, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]

        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True), *down(width, 2 * width),
            *down(2 * width, 4 * width), nn.Conv2d(4 * width, 1, 4, bias=False), nn.Flatten(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Gan(nn.Module):
    """Both losses in one step: the discriminator learns from real and made images, the generator through it."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.generator, self.discriminator = Generator(noise, width), Discriminator(width)

    def forward(self, images: Tensor, noise: Tensor) -> Tensor:
        made = self.generator(noise)
        loss = functional.binary_cross_entropy_with_logits
        real, fake = self.discriminator(images), self.discriminator(made.detach())
        judged = loss(real, torch.ones_like(real)) + loss(fake, torch.zeros_like(fake))
        frozen = {name: one.detach() for name, one in self.discriminator.named_parameters()}
        fooled = torch.func.functional_call(self.discriminator, frozen, (made,))
        return judged + loss(fooled, torch.ones_like(fooled))


def dcgan(batch: int = 8) -> autotune.Step:
    """Generator and discriminator."""
    inputs = torch.zeros(batch, 3, 32, 32), torch.zeros(batch, 100, 1, 1)
    return autotune.Step(Gan(100, 32), inputs)


class Values(nn.Module):
    """The convolutional net of deep Q-learning (Mnih et al., 2015)."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class QLearning(nn.Module):
    """The net, its frozen target, and the Huber loss of the temporal difference."""

    def __init__(self, actions: int, discount: float) -> None:
        super().__init__()
        self.online, self.target = Values(actions), Values(actions).requires_grad_(False)
        self.discount = discount

    def forward(self, before: Tensor, after: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        best = reward + self.discount * self.target(after).max(1).values
        chosen = self.online(before).gather(1, action[:, None])[:, 0]
        return functional.smooth_l1_loss(chosen, best)


def deep_q(batch: int = 8, actions: int = 6) -> autotune.Step:
    """Deep Q-learning on four frames of 84x84 pixels."""
    frames = torch.zeros(batch, 4, 84, 84)
    action = torch.arange(batch) % actions
    return autotune.Step(
        QLearning(actions, 0.99), (frames, frames.clone(), action, torch.zeros(batch))
    )


class Unet(nn.Module):
    """Two levels down and up, with transposed convolutions (Ronneberger et al., 2015)."""

    input_shape = (3, 64, 64)

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.first, self.second = self.double(3, width), self.double(width, 2 * width)
        self.bottom = self.double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.back2, self.back1 = self.double(4 * width, 2 * width), self.double(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def double(inputs: int, outputs: int) -> nn.Sequential:
        """Two convolutions with batch norm and ReLU."""
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            conv = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        y = self.back2(torch.cat([self.up2(bottom), second], 1))
        return self.head(self.back1(torch.cat([self.up1(y), first], 1)))


def unet(classes: int = 4, width: int = 16) -> nn.Module:
    """A class for each pixel: the loss is cross entropy."""
    return Unet(classes, width)
