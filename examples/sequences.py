"""Sequences: a Char-CNN with its LSTM, keyword spotting, sensors, an LSTM and a GRU classifier.

autotune kernels --model examples/sequences.py:char_cnn --batch 8
"""

from __future__ import annotations

from torch import Tensor, nn


class CharCnn(nn.Module):
    """Characters, one-hot over positions, through a convolution and an LSTM."""

    input_shape = (70, 128)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(70, 128, 7), nn.ReLU(), nn.MaxPool1d(3))
        self.rnn, self.head = nn.LSTM(128, 128, batch_first=True), nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.conv(x).transpose(1, 2))[0][:, -1])


def char_cnn(classes: int = 10) -> nn.Module:
    """A convolution over characters, then an LSTM."""
    return CharCnn(classes)


class DsCnn(nn.Module):
    """Depthwise separable convolutions over a spectrogram (Zhang et al., 2017)."""

    input_shape = (1, 49, 10)

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(1, width, (10, 4), (2, 2), (5, 1), bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        ]  # fmt: skip
        for _ in range(4):
            layers += [
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            ]  # fmt: skip
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def ds_cnn(classes: int = 12) -> nn.Module:
    """Keyword spotting."""
    return DsCnn(classes)


class Sensors(nn.Module):
    """Human activity from nine channels of a phone's sensors."""

    input_shape = (9, 128)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(9, 32, 8), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(32, 64, 8), nn.ReLU(), nn.MaxPool1d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 26, 128), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def sensors(classes: int = 6) -> nn.Module:
    """Convolutions along time."""
    return Sensors(classes)


class Recurrent(nn.Module):
    """Two recurrent layers, and a classifier of their last output."""

    input_shape = (32, 16)

    def __init__(self, kind: type[nn.RNNBase], classes: int) -> None:
        super().__init__()
        self.rnn = kind(16, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def lstm(classes: int = 6) -> nn.Module:
    """An LSTM classifier."""
    return Recurrent(nn.LSTM, classes)


def gru(classes: int = 6) -> nn.Module:
    """A GRU classifier."""
    return Recurrent(nn.GRU, classes)
