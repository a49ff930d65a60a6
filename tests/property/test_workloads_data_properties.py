"""Samples survive their formats, damaged files end in one clear line, and batches keep image and label together."""

from __future__ import annotations

import gzip
import io
import struct
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.workloads import Samples, batches, load_samples

SHAPES = st.tuples(st.sampled_from((1, 3)), st.integers(1, 9), st.integers(1, 9))
SEEDS = st.integers(0, 2**32 - 1)


def idx(array: np.ndarray) -> bytes:
    """The bytes of an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


@given(SHAPES, st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), SEEDS)
@settings(max_examples=60, deadline=None)
def test_each_pixel_is_the_nearest_of_the_file(
    shape: tuple[int, int, int], height: int, width: int, count: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, height, width), np.uint8)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train-images-idx3-ubyte").write_bytes(idx(images))
        (Path(name) / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(count, np.uint8)))
        loaded = load_samples(Path(name), shape, 1).images
    assert loaded.shape == (count, *shape)
    for row in range(shape[1]):
        for column in range(shape[2]):
            at = int((row + 0.5) * height / shape[1]), int((column + 0.5) * width / shape[2])
            expected = images[:, at[0], at[1]] / 255 * 2 - 1
            for channel in range(shape[0]):
                np.testing.assert_allclose(loaded[:, channel, row, column], expected, atol=1e-6)


def damaged(content: bytes, draw: st.DataObject) -> bytes:
    """Cuts the content somewhere or changes some of its bytes."""
    if draw.draw(st.booleans()):
        return content[: draw.draw(st.integers(0, len(content) - 1))]
    changed = bytearray(content)
    for at in draw.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        changed[at] = draw.draw(st.integers(0, 255))
    return bytes(changed)


@given(st.sampled_from(("idx", "idx.gz", "bin", "npz")), st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_file_loads_or_is_refused_in_one_line(form: str, draw: st.DataObject) -> None:
    images = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"images.{form}"
        if form.startswith("idx"):
            content = idx(images)
            content = gzip.compress(content) if form.endswith("gz") else content
            (Path(name) / "labels.idx").write_bytes(idx(np.array([0, 1], np.uint8)))
        elif form == "bin":
            content = (b"\1" + bytes(3072)) * 2
        else:
            stream = io.BytesIO()
            np.savez(stream, images=images[:, None], labels=np.array([0, 1]))
            content = stream.getvalue()
        path.write_bytes(damaged(content, draw))
        try:
            samples = load_samples(path, (1, 4, 4), 10)
        except UsageError as error:
            assert "\n" not in str(error)
            assert error.message.startswith(name)
            assert error.hint
        else:
            assert samples.images.shape == (samples.count, 1, 4, 4)
            assert samples.labels.min() >= 0 and samples.labels.max() < 10


@given(st.integers(1, 30), st.data(), SEEDS)
@settings(max_examples=60, deadline=None)
def test_an_epoch_shows_each_sample_at_most_once_with_its_label(
    count: int, draw: st.DataObject, seed: int
) -> None:
    batch = draw.draw(st.integers(1, count))
    numbers = np.arange(count)
    samples = Samples(
        numbers.astype(np.float32).reshape(count, 1, 1, 1), (numbers * 7 % 5).astype(np.int32)
    )
    stream = batches(samples, batch, seed)
    for _ in range(2):
        seen = []
        for images, labels in islice(stream, count // batch):
            assert images.shape == (batch, 1, 1, 1)
            assert (images.ravel().astype(int) * 7 % 5 == labels).all()
            seen.extend(images.ravel().tolist())
        assert len(seen) == len(set(seen)) == count // batch * batch
