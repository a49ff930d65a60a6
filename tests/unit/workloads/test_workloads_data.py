"""Training data from files in their real formats, generated samples and batches."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads import (
    DataSpec,
    Samples,
    batches,
    generated_samples,
    load_arrays,
    load_samples,
)
from autotune.workloads.data import formats, samples

Array = NDArray[Any]
Ending = Callable[[bytes], bytes]

GREY = (1, 28, 28)
COLOUR = (3, 32, 32)


def idx(array: Array) -> bytes:
    """The bytes of an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def pixels(seed: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def standard(image: Array) -> Array:
    """What becomes of bytes."""
    return (image.astype(np.float64) / 255 - 0.5) / 0.5


def write_mnist(folder: Path, images: Array, labels: list[int], ending: str = "") -> Path:
    pack = gzip.compress if ending == ".gz" else bytes
    path = folder / f"train-images-idx3-ubyte{ending}"
    path.write_bytes(pack(idx(images)))
    content = idx(np.array(labels, np.uint8))
    (folder / f"train-labels-idx1-ubyte{ending}").write_bytes(pack(content))
    return path


def write_cifar(path: Path, labels: list[tuple[int, ...]], images: Array) -> Path:
    records = [bytes(label) + image.tobytes() for label, image in zip(labels, images, strict=True)]
    path.write_bytes(b"".join(records))
    return path


def refusal(path: Path, shape: tuple[int, int, int] = GREY, classes: int = 10) -> str:
    """The one line with which a path is refused."""
    with pytest.raises(UsageError) as caught:
        load_samples(path, shape, classes)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("whole_folder", [True, False])
def test_mnist(tmp_path: Path, ending: str, whole_folder: bool) -> None:
    images = pixels(0, 5, 28, 28)
    path = write_mnist(tmp_path, images, [3, 1, 4, 1, 5], ending)
    samples = load_samples(tmp_path if whole_folder else path, GREY, 10)
    assert samples.count == 5
    assert (samples.images.dtype, samples.labels.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(samples.images, standard(images)[:, None], atol=1e-6)
    assert samples.labels.tolist() == [3, 1, 4, 1, 5]


def test_mnist_test_set_with_compressed_images_and_plain_labels(tmp_path: Path) -> None:
    path = tmp_path / "t10k-images.idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(pixels(0, 2, 28, 28))))
    (tmp_path / "t10k-labels.idx1-ubyte").write_bytes(idx(np.array([7, 2], np.uint8)))
    assert load_samples(path, GREY, 10).labels.tolist() == [7, 2]


def test_cifar10_folder_reads_the_training_files_in_order(tmp_path: Path) -> None:
    images = pixels(1, 3, *COLOUR)
    write_cifar(tmp_path / "data_batch_2.bin", [(8,)], images[2:])
    write_cifar(tmp_path / "data_batch_1.bin", [(6,), (9,)], images[:2])
    write_cifar(tmp_path / "test_batch.bin", [(0,)], images[:1])
    samples = load_samples(tmp_path, COLOUR, 10)
    assert samples.labels.tolist() == [6, 9, 8]
    np.testing.assert_allclose(samples.images, standard(images), atol=1e-6)
    assert load_samples(tmp_path / "test_batch.bin", COLOUR, 10).labels.tolist() == [0]


@pytest.mark.parametrize("whole_folder", [True, False])
def test_cifar100_takes_the_fine_labels(tmp_path: Path, whole_folder: bool) -> None:
    images = pixels(2, 2, *COLOUR)
    path = write_cifar(tmp_path / "train.bin", [(4, 99), (1, 0)], images)
    samples = load_samples(tmp_path if whole_folder else path, COLOUR, 100)
    assert samples.labels.tolist() == [99, 0]
    np.testing.assert_allclose(samples.images, standard(images), atol=1e-6)


@pytest.mark.parametrize("name", ["train.bin", "data_batch_1.bin"])
def test_cifar_of_a_size_that_fits_both_goes_by_its_name(tmp_path: Path, name: str) -> None:
    labels = 2 if name == "train.bin" else 1
    records = 3073 * 3074 // (3072 + labels)
    content = np.zeros((records, 3072 + labels), np.uint8)
    content[:, labels - 1] = np.arange(records) % 10
    (tmp_path / name).write_bytes(content.tobytes())
    loaded = load_samples(tmp_path / name, (1, 1, 1), 10).labels
    np.testing.assert_array_equal(loaded, np.arange(records) % 10)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64", ">f4"])
def test_npz_of_either_layout_and_several_types(tmp_path: Path, last: bool, dtype: str) -> None:
    content = pixels(3, 4, 3, 6, 5)
    stored = content if dtype == "uint8" else (content / 255).astype(dtype)
    labels = np.arange(4, dtype=np.int64)
    path = tmp_path / "set.npz"
    np.savez_compressed(
        path, images=stored.transpose(0, 2, 3, 1) if last else stored, labels=labels
    )
    samples = load_samples(path, (3, 6, 5), 4)
    tolerance = 2e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(samples.images, standard(content), atol=tolerance)
    assert samples.images.flags.c_contiguous
    assert samples.labels.tolist() == [0, 1, 2, 3]


def test_floats_up_to_255_are_scaled_as_bytes_are(tmp_path: Path) -> None:
    content = pixels(4, 2, 1, 3, 3)
    np.savez(tmp_path / "set.npz", images=content.astype(np.float32), labels=np.array([0, 1]))
    samples = load_samples(tmp_path / "set.npz", (1, 3, 3), 2)
    np.testing.assert_allclose(samples.images, standard(content), atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (6, 5), (2, 6, 5)])
def test_samples_have_the_models_shape_whatever_that_is(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    given = np.random.default_rng(2).normal(size=(4, *shape)).astype(np.float32)
    np.savez(tmp_path / "set.npz", x=given, y=np.arange(4))
    np.testing.assert_allclose(load_samples(tmp_path / "set.npz", shape, 4).images, given)
    assert generated_samples(4, shape, 4, seed=1).images.shape == given.shape
    with pytest.raises(UsageError, match=r"a sample is of shape|images have"):
        load_samples(tmp_path / "set.npz", (7,), 4)


def test_small_images_with_three_pixels_a_side_go_by_the_models_shape(tmp_path: Path) -> None:
    content = pixels(5, 2, 3, 4, 3)
    np.savez(tmp_path / "set.npz", images=content, labels=np.array([0, 1]))
    as_planes = load_samples(tmp_path / "set.npz", (3, 4, 3), 2)
    np.testing.assert_allclose(as_planes.images, standard(content), atol=1e-6)
    as_pixels = load_samples(tmp_path / "set.npz", (3, 3, 4), 2)
    np.testing.assert_allclose(as_pixels.images, standard(content.transpose(0, 3, 1, 2)), atol=1e-6)


def test_size_and_channels_are_fitted(tmp_path: Path) -> None:
    image = np.array([[[0, 255], [255, 0]]], np.uint8)
    write_mnist(tmp_path, image, [1])
    doubled = load_samples(tmp_path, (3, 4, 4), 2).images
    expected = standard(np.kron(image[0], np.ones((2, 2))))
    np.testing.assert_allclose(doubled, np.broadcast_to(expected, (1, 3, 4, 4)), atol=1e-6)
    colour = pixels(6, 2, *COLOUR)
    path = write_cifar(tmp_path / "data_batch_1.bin", [(0,), (1,)], colour)
    grey = load_samples(path, (1, 32, 32), 10).images
    np.testing.assert_allclose(grey[:, 0], standard(colour).mean(axis=1), atol=1e-6)
    halved = load_samples(path, (3, 16, 16), 10).images
    np.testing.assert_allclose(halved, standard(colour)[:, :, 1::2, 1::2], atol=1e-6)


def test_a_limit_is_spread_over_the_file(tmp_path: Path) -> None:
    write_mnist(tmp_path, pixels(7, 100, 2, 2), [at // 10 for at in range(100)])
    labels = load_samples(tmp_path, (1, 2, 2), 10, limit=10).labels
    assert labels.tolist() == list(range(10))
    assert load_samples(tmp_path, (1, 2, 2), 10, limit=1000).count == 100
    with pytest.raises(UsageError, match="limit=0 is too small"):
        load_samples(tmp_path, (1, 2, 2), 10, limit=0)


def test_a_set_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path, pixels(8, 10, 2, 2), list(range(10)))
    monkeypatch.setattr(samples, "LARGEST_BYTES", 7 * 4 * 9)
    assert "10 samples of 1x3x3 take" in refusal(tmp_path, (1, 3, 3))
    assert "at most 7 samples" in refusal(tmp_path, (1, 3, 3))
    assert load_samples(tmp_path, (1, 3, 3), 10, limit=7).count == 7
    with pytest.raises(UsageError, match="at most 7 samples"):
        generated_samples(8, (1, 3, 3), 2, 0)


def test_samples_of_more_axes_than_an_image_are_generated_and_read(tmp_path: Path) -> None:
    shape = (2, 3, 4, 5)
    made = generated_samples(64, shape, 3, 1)
    assert made.images.shape == (64, *shape)
    assert abs(float(made.images.mean())) < 0.05
    assert abs(float(made.images.var()) - 1) < 0.1
    given = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32)
    np.savez(tmp_path / "set.npz", inputs=given, labels=np.arange(6) % 3)
    read = load_samples(tmp_path / "set.npz", shape, 3)
    assert np.array_equal(read.images, given)
    assert "a sample is of shape (2, 3, 4, 5), and the model takes (2, 3, 4, 6)" in refusal(
        tmp_path / "set.npz", (2, 3, 4, 6)
    )


def test_labels_name_the_classes_that_they_need(tmp_path: Path) -> None:
    write_mnist(tmp_path, pixels(9, 3, 4, 4), [0, 11, 5])
    line = refusal(tmp_path)
    assert "labels reach 11 but the model has 10 classes" in line
    assert "needs 12 classes" in line
    np.savez(tmp_path / "set.npz", images=pixels(9, 2, 1, 4, 4), labels=np.array([0, -1]))
    assert "label -1 is negative" in refusal(tmp_path / "set.npz")
    huge = np.array([0, 2**63], np.uint64)
    np.savez(tmp_path / "set.npz", images=pixels(9, 2, 1, 4, 4), labels=huge)
    assert f"labels reach {2**63}" in refusal(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        (lambda content: content[:-1], "wrong length: [2, 4, 4] bytes are announced, 31 found"),
        (lambda content: content + b"x", "at least 33 found"),
        (lambda content: content[:9], "header is cut short"),
        (lambda content: b"", "header is cut short"),
        (lambda content: b"\0\0\x0d\3" + content[4:], "starts with 00000d03"),
        (lambda content: content[:4] + b"\xff" * 12 + content[16:], "are announced, 32 found"),
        (lambda content: b"P6 4 4 255 " + content, "starts with 50362034"),
        (lambda content: gzip.compress(content)[:-9], "is damaged"),
        (lambda content: gzip.compress(content)[:20] + b"\0" * 20, "is damaged"),
        (lambda content: b"\x1f\x8b\0\0\0", "is damaged"),
    ],
)
def test_damaged_idx_files(tmp_path: Path, broken: Ending, part: str) -> None:
    path = write_mnist(tmp_path, pixels(10, 2, 4, 4), [0, 1])
    path.write_bytes(broken(path.read_bytes()))
    assert part in refusal(path)


def test_idx_labels_are_checked_too(tmp_path: Path) -> None:
    path = write_mnist(tmp_path, pixels(11, 2, 4, 4), [0, 1, 2])
    assert "there are 2 images but 3 labels" in refusal(path)
    labels = tmp_path / "train-labels-idx1-ubyte"
    assert "starts with 00000801, not with IDX's 00000803" in refusal(labels)
    labels.unlink()
    assert "put train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz beside it" in refusal(path)
    write_mnist(tmp_path, pixels(11, 0, 4, 4), [])
    assert "there are no samples in it" in refusal(path)


@pytest.mark.parametrize("size", [0, 1, 3072, 2 * 3073 + 1])
def test_damaged_cifar_files(tmp_path: Path, size: int) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(size))
    assert f"{size} bytes are not whole records" in refusal(tmp_path, COLOUR)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["data_batch_1", "train", "set.npz", "data_batch_1.bin", "a.pkl"])
def test_nothing_is_unpickled(tmp_path: Path, name: str) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / name).write_bytes(pickle.dumps({"data": Trap(sprung)}, protocol=2))
    assert "cifar-10-binary.tar.gz" in refusal(tmp_path / name, COLOUR)
    objects = np.array([Trap(sprung)], dtype=object)
    np.savez(tmp_path / "objects.npz", images=objects, labels=np.array([0]))
    assert "is not an .npz file of plain arrays" in refusal(tmp_path / "objects.npz", COLOUR)
    assert not sprung.exists()


def test_cifars_python_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}q\x01.")
    (tmp_path / "batches.meta").write_bytes(b"\x80\x02}q\x01.")
    assert "CIFAR's Python version" in refusal(tmp_path, COLOUR)


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"labels": np.zeros(2, int)}, "has no array images"),
        ({"z": np.zeros(2)}, "has no array images and no array labels"),
        (
            {"images": pixels(0, 2, 4, 4), "labels": np.zeros(2, int)},
            "a sample is of shape (4, 4), and the model takes",
        ),
        ({"images": np.array(["a", "b"]), "labels": np.zeros(2, int)}, "images are <U1[2]"),
        ({"x": np.array([1j, 2j]), "y": np.zeros(2, int)}, "images are complex128[2]"),
        ({"images": pixels(0, 2, 1, 4, 4), "labels": np.zeros(2)}, "labels are float64[2]"),
        (
            {"images": pixels(0, 2, 1, 4, 4), "labels": np.zeros((2, 1), int)},
            "labels are int64[2, 1]",
        ),
        ({"images": pixels(0, 2, 1, 4, 4), "labels": np.zeros(3, int)}, "2 images but 3 labels"),
        (
            {"images": pixels(0, 2, 2, 4, 4), "labels": np.zeros(2, int)},
            "2 channels, the model takes 1",
        ),
        (
            {"images": pixels(0, 0, 1, 4, 4), "labels": np.zeros(0, int)},
            "there are no samples in it",
        ),
        (
            {"images": np.full((2, 1, 4, 4), np.nan), "labels": np.zeros(2, int)},
            "values reach from nan",
        ),
        (
            {"images": np.full((2, 1, 4, 4), np.inf), "labels": np.zeros(2, int)},
            "values reach from inf",
        ),
    ],
)
def test_npz_with_unusable_arrays(tmp_path: Path, arrays: dict[str, Array], part: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    assert part in refusal(tmp_path / "set.npz")


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((1, 28, 28), ("images", "labels")),
        ((28, 28), ("inputs", "targets")),
        ((28, 1, 28), ("x", "y")),
        ((1, 1, 28, 28), ("x_train", "y_train")),
    ],
)
@pytest.mark.parametrize("kind", ["signed", "large", "whole"])
def test_samples_of_any_shape_and_signed_values_are_taken_as_they_are(
    tmp_path: Path, shape: tuple[int, ...], names: tuple[str, str], kind: str
) -> None:
    generator = np.random.default_rng(4)
    values = {
        "signed": generator.normal(size=(3, *shape)),
        "large": generator.uniform(0, 4000, size=(3, *shape)),
        "whole": generator.integers(-300, 300, size=(3, *shape)),
    }[kind]
    np.savez(tmp_path / "set.npz", **{names[0]: values, names[1]: np.arange(3)})
    found = load_samples(tmp_path / "set.npz", GREY, 10)
    np.testing.assert_array_equal(found.images, values.astype(np.float32).reshape(3, *GREY))
    np.testing.assert_array_equal(found.labels, np.arange(3))


def test_a_sequence_fits_a_model_with_axes_of_one_element(tmp_path: Path) -> None:
    values = np.random.default_rng(2).normal(size=(5, 9, 40)).astype(np.float32)
    np.savez(tmp_path / "set.npz", x=values, y=np.zeros(5, int))
    for shape in ((9, 40, 1), (9, 1, 40), (1, 9, 40)):
        found = load_samples(tmp_path / "set.npz", shape, 2)
        np.testing.assert_array_equal(found.images, values.reshape(5, *shape))
    with pytest.raises(UsageError, match=r"a sample is of shape \(9, 40\), and the model takes"):
        load_samples(tmp_path / "set.npz", (40, 9, 1), 2)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(path, images=np.zeros((200, *GREY)), labels=np.zeros(200, int))
    monkeypatch.setattr(formats, "LARGEST_BYTES", 100_000)
    assert path.stat().st_size < 10_000
    assert "unpacks to 12" in refusal(path)


TOKENS = {"input": DataSpec((7,), 50, False), "labels": DataSpec((7,), 50, True)}


def test_arrays_of_any_step_are_taken_as_they_are(tmp_path: Path) -> None:
    path, random = tmp_path / "a.npz", np.random.default_rng(1)
    volume, price = random.normal(size=(5, 2, 3, 4, 5)), random.normal(size=5)
    np.savez(path, **{"input.0": volume, "input.1": price, "y": np.arange(5)})
    wanted = {
        "input.0": DataSpec((2, 3, 4, 5), None, False),
        "input.1": DataSpec((), None, False),
        "labels": DataSpec((), 5, True),
    }
    found = load_arrays(path, wanted)
    np.testing.assert_array_equal(found["input.0"], volume.astype(np.float32))
    np.testing.assert_array_equal(found["input.1"], price.astype(np.float32))
    np.testing.assert_array_equal(found["labels"], np.arange(5, dtype=np.int32))
    assert load_arrays(path, wanted, limit=2)["labels"].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"x": np.full((4, 7), 50), "y": np.zeros((4, 7), int)}, "input reaches from 50 to 50"),
        ({"x": np.zeros((4, 7), int), "y": np.full((4, 7), -1)}, "labels reaches from -1 to -1"),
        ({"x": np.full((4, 7), 0.5), "y": np.zeros((4, 7), int)}, "input is float64"),
        ({"x": np.zeros((4, 8), int), "y": np.zeros((4, 7), int)}, "input is of shape (4, 8)"),
        ({"x": np.zeros((4, 7), int), "y": np.zeros((5, 7), int)}, "4 input but 5 labels"),
        ({"x": np.zeros((0, 7), int), "y": np.zeros((0, 7), int)}, "arrays have 0 samples"),
        ({"x": np.zeros((4, 7), int)}, "has no array labels"),
    ],
)
def test_arrays_that_do_not_fit_a_step_are_refused(
    tmp_path: Path, arrays: dict[str, Array], part: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError) as caught:
        load_arrays(tmp_path / "a.npz", TOKENS)
    assert part in caught.value.message
    assert "\n" not in caught.value.message


def test_arrays_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full((4, 2), np.nan))
    with pytest.raises(UsageError, match="finite") as caught:
        load_arrays(tmp_path / "a.npz", {"input": DataSpec((2,), None, False)})
    assert "nan" in caught.value.message


def test_other_paths(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "nothing")
    assert "has neither train-images-idx3-ubyte[.gz] nor" in refusal(tmp_path)
    for name in ("cifar-10-binary.tar.gz", "set.zip"):
        (tmp_path / name).write_bytes(b"PK")
        assert "unpack it" in refusal(tmp_path / name)
    (tmp_path / "set.npz").write_bytes(b"PK\3\4 and no more")
    assert "is not an .npz file of plain arrays" in refusal(tmp_path / "set.npz")
    with (tmp_path / "set.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert "is not an .npz file of plain arrays" in refusal(tmp_path / "set.npz")
    assert "cannot be read" in refusal(tmp_path / ("n" * 300))


def test_impossible_requests(tmp_path: Path) -> None:
    assert "impossible" in refusal(tmp_path, (0, 2, 2))
    assert "impossible" in refusal(tmp_path, GREY, classes=0)
    for count, seed, part in ((0, 0, "0 samples"), (1, -1, "seed -1 is negative")):
        with pytest.raises(UsageError, match=part):
            generated_samples(count, GREY, 10, seed)


def test_samples_check_their_arrays() -> None:
    images, labels = np.zeros((2, 1, 3, 3), np.float32), np.zeros(2, np.int32)
    assert Samples(images, labels).count == 2
    for bad in (images[0, 0, 0], images.astype(np.float64), images[:0]):
        with pytest.raises(UsageError, match="images are"):
            Samples(bad, labels)
    for wrong in (labels[:1], labels.astype(np.int64)):
        with pytest.raises(UsageError, match="labels are"):
            Samples(images, wrong)


def test_generated_samples_can_be_told_apart() -> None:
    samples = generated_samples(600, (3, 16, 12), 5, seed=3)
    assert np.bincount(samples.labels).tolist() == [120] * 5
    assert abs(float(samples.images.mean())) < 0.3
    assert math.isclose(float(samples.images.var()), 1.0, rel_tol=0.1)
    again = generated_samples(600, (3, 16, 12), 5, seed=3)
    np.testing.assert_array_equal(again.images, samples.images)
    assert (generated_samples(600, (3, 16, 12), 5, seed=4).images != samples.images).any()
    train, rest = samples.images[:300].reshape(300, -1), samples.images[300:].reshape(300, -1)
    means = np.stack([train[samples.labels[:300] == label].mean(axis=0) for label in range(5)])
    distances = ((rest[:, None] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == samples.labels[300:]).mean() > 0.99


def test_generated_patterns_are_smooth() -> None:
    samples = generated_samples(400, (1, 32, 32), 1, seed=0)
    pattern = samples.images.mean(axis=0)[0]
    assert np.square(np.diff(pattern, axis=0)).mean() < 0.2 * np.square(pattern).mean()


def test_batches_are_full_and_cover_an_epoch_once() -> None:
    samples = generated_samples(10, (1, 2, 2), 3, seed=0)
    stream = batches(samples, 3, seed=1)
    for _ in range(4):
        epoch = list(islice(stream, 3))
        images = np.concatenate([images for images, _ in epoch])
        assert all(len(images) == len(labels) == 3 for images, labels in epoch)
        assert len(np.unique(images.reshape(9, -1), axis=0)) == 9
    first, second = (list(islice(batches(samples, 5, seed=2), 4)) for _ in range(2))
    for (images, labels), (others, other_labels) in zip(first, second, strict=True):
        np.testing.assert_array_equal(images, others)
        np.testing.assert_array_equal(labels, other_labels)
    assert (first[0][0] != first[2][0]).any()


def test_batches_are_copies() -> None:
    samples = generated_samples(4, (1, 2, 2), 2, seed=0)
    before = samples.images.copy()
    images, _ = next(batches(samples, 4, seed=0))
    images[:] = 0
    np.testing.assert_array_equal(samples.images, before)


@pytest.mark.parametrize(
    ("batch", "seed", "part"),
    [
        (0, 0, "batch=0 is too small"),
        (5, 0, "4 samples do not fill a batch of 5"),
        (1, -1, "negative"),
    ],
)
def test_impossible_batches_are_refused_at_once(batch: int, seed: int, part: str) -> None:
    samples = generated_samples(4, (1, 2, 2), 2, seed=0)
    with pytest.raises(UsageError, match=part):
        batches(samples, batch, seed)


@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f8", "i8"])
def test_some_samples_of_an_npz_are_those_of_the_whole(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "a.npz"
    wanted = {"x": DataSpec((3,), None, label=False), "y": DataSpec((), 5, label=True)}
    x = np.arange(3 * 70_000).reshape(-1, 3).astype(dtype)
    np.savez_compressed(path, x=x, y=np.arange(70_000) % 5)
    whole = load_arrays(path, wanted)
    for limit in (1, 7, 69_999, 70_000, 80_000):
        some = load_arrays(path, wanted, limit=limit)
        chosen = np.arange(min(limit, 70_000)) * 70_000 // min(limit, 70_000)
        for what in wanted:
            np.testing.assert_array_equal(some[what], whole[what][chosen])


def test_few_samples_of_a_large_npz_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    wanted = {"x": DataSpec((100,), None, label=False), "y": DataSpec((), 5, label=True)}
    np.savez_compressed(path, x=np.zeros((1_000_000, 100), np.uint8), y=np.zeros(1_000_000, int))
    tracemalloc.start()
    load_arrays(path, wanted, limit=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_unlike_numbers_are_refused_before_the_arrays_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(
        path, images=np.zeros((2, 1, 4, 4), np.uint8), labels=np.zeros(50_000_000, np.uint8)
    )
    tracemalloc.start()
    with pytest.raises(UsageError, match="there are 2 images but 50000000 labels"):
        load_samples(path, (1, 4, 4), 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("cut", [300_000, 999_990])
def test_an_array_that_ends_early_is_one_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.npz"
    with io.BytesIO() as file:
        np.save(file, np.zeros((100_000, 10), np.uint8))
        content = file.getvalue()
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x.npy", content[:-cut])
        packed.writestr("y.npy", content)
    wanted = {"x": DataSpec((10,), None, label=False), "y": DataSpec((10,), None, label=True)}
    with pytest.raises(UsageError, match=r"is not an \.npz file of plain arrays"):
        load_arrays(path, wanted, limit=99_999)
