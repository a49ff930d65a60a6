"""`autotune step --cache-features`: frozen layers are computed once for each sample."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from command import autotune_here

from autotune.errors import UsageError
from autotune.jobs.steps.cached_features import FeatureFile

pytest.importorskip("torch")
NETS = """
import torch, autotune
from torch import nn
F = nn.functional

class Net(nn.Module):
    input_shape = (3, 8, 8)

    def __init__(self, dropout):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(dropout)
        self.more = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = self.body(x)
        z = self.more(self.drop(y))
        return self.head(torch.cat([y.mean((2, 3)), z.mean((2, 3))], 1))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(40, 8), nn.Linear(8, 3)

    def forward(self, ids, scale):
        return self.head(torch.tanh(self.words(ids)).mean(1) * scale)

def net():
    return Net(0.0)

def dropping():
    return Net(0.5)

def words(batch):
    step = autotune.Step(
        Words(), (torch.randint(0, 40, (batch, 6)), torch.rand(batch, 1)), torch.randint(0, 3, (batch,)),
        F.cross_entropy, ("head.*",))
    return step

def all_trains():
    return Net(0.0)
"""


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(NETS, encoding="utf-8")
    return path


def stepped(*options: object) -> dict[str, Any]:
    done = autotune_here("step", *options, "--steps", "40", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "name", ["net:--train more.* --train head.* --train frozen:eval", "words:",
             "dropping:--train head.* --train frozen:eval"],
)  # fmt: skip
def test_steps_are_the_same_with_kept_features(nets: Path, name: str) -> None:
    factory, _, options = name.partition(":")
    model = ("--model", f"{nets}:{factory}", "--batch", "4", *options.split())
    kept = nets.with_name("features")
    plain = stepped(*model)
    first = stepped(*model, "--cache-features", kept)
    assert first["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert first["features"]["batches_computed"] > 0
    size = kept.stat().st_size
    os.truncate(kept, size - 3)  # The last record was not written whole.
    again = stepped(*model, "--cache-features", kept)
    assert again["losses"] == first["losses"]
    assert again["features"]["batches_computed"] == 1
    assert again["features"]["reused"] >= 150
    assert again["features"]["samples"] == first["features"]["samples"] <= 64
    assert kept.stat().st_size == size
    assert plain["features"] is None
    assert again["peak_bytes"] <= plain["peak_bytes"] + 16 * mmap.PAGESIZE  # Measured in pages.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--train", "head.*"), "mix the samples of a batch"),
        ((), "has no frozen layers before those that train"),
        (("--train", "head.*", "--train", "frozen:eval", "--seed", "2"), "of other layers, weights"),
        (("--train", "head.*", "--train", "frozen:eval", "--batch", "2"), "of other layers, weights"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(nets: Path, options: tuple[str, ...], message: str) -> None:
    kept = nets.with_name("features")
    model = ("--model", f"{nets}:net", "--batch", "4", "--cache-features", kept)
    stepped(*model, "--train", "head.*", "--train", "frozen:eval")
    before = kept.read_bytes()
    done = autotune_here("step", *model, *options, "--steps", "4")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert kept.read_bytes() == before


def test_a_file_keeps_rows_between_processes(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    samples = [bytes([n]) * 15 + b"\0" for n in range(3)]  # Zeros at the end count.
    file = FeatureFile(path, "a", 5)
    for sample in samples:
        file.add(sample, sample[:5])
    with pytest.raises(UsageError, match="in use by another process"):
        FeatureFile(path, "a", 5)
    file.close()
    again = FeatureFile(path, "a", 5)
    assert len(again) == 3
    assert [again.row(sample) for sample in samples] == [sample[:5] for sample in samples]
    again.close()


@pytest.mark.parametrize(
    "content",
    [
        b"x" * 400,
        b"{" * 256,
        b"[" * 256 + b"\n",
        b'{"autotune_features": 2, "layers": "a", "row_bytes": 5}'.ljust(255) + b"\n",
        b'{"autotune_features": 1e400}'.ljust(255) + b"\n",
        b'{"autotune_features": true}'.ljust(255) + b"\n",
        b'{"autotune_features": 1}',
    ],
)
def test_other_files_are_left_as_they_are(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"holds no features|of other layers"):
        FeatureFile(path, "a", 5)
    assert path.read_bytes() == content


def test_pipes_devices_and_endless_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(UsageError, match="not a regular file"):
            FeatureFile(path, "a", 5)
    with pytest.raises(UsageError, match="cannot be opened"):
        FeatureFile(tmp_path, "a", 5)
    long = tmp_path / "long"
    FeatureFile(long, "a", 5).close()
    os.truncate(long, 1 << 40)
    with pytest.raises(UsageError, match="more than 4,000,000 samples"):
        FeatureFile(long, "a", 5)


def test_a_full_file_keeps_what_it_has(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.jobs.steps.cached_features._MOST_SAMPLES", 6)
    model = ("--model", f"{nets}:words", "--batch", "4")
    plain = stepped(*model)
    full = stepped(*model, "--cache-features", nets.with_name("features"))
    assert full["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert full["features"]["samples"] == 6
