"""Training data: samples from files in common formats, generated samples, and batches of both."""

from __future__ import annotations

import gzip
import logging
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.reading import open_file, read_bytes

LOGGER = logging.getLogger("autotune.workloads")
FORMATS = (
    "MNIST's IDX files, CIFAR's binary version (.bin), or an .npz with the arrays images and labels"
)
LARGEST_BYTES = 4 * 2**30  # Of images, as float32 in the model's input size.

_IDX_IMAGES, _IDX_LABELS = 0x0803, 0x0801  # Unsigned bytes, in three axes and in one.
_CIFAR_SHAPE = (3, 32, 32)
_ARRAYS = {
    "images": ("images", "inputs", "x", "x_train"),
    "labels": ("labels", "targets", "y", "y_train"),
}
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
_PYTHON_CIFAR = ("data_batch_1", "batches.meta", "meta")  # Files of CIFAR's Python version.
_CHUNK = 256  # Number of images that are converted at once.
_LARGEST_VALUE = 1e30
_PIECE = 2**20  # Number of bytes that are read at once.
_WAVES = 4  # Number of cosines along each axis of a generated pattern.

IMAGE_AXES = 3
"""Axes of an image: channels, height and width."""
Shape = tuple[int, ...]
"""Shape of a sample. One with fewer axes than an image is an image with leading sizes of 1."""
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Samples:
    """Images with their classes, ready for a model.

    Attributes:
        images: float32 [count, c, h, w], or [count, *shape of the model's input], standardised.
        labels: int32 [count], classes from 0.

    Raises:
        UsageError: On construction, if a shape or type is wrong, or there is no sample.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int32]

    def __post_init__(self) -> None:
        """Checks shapes and types."""
        images, labels = self.images, self.labels
        if not 2 <= images.ndim <= 4 or images.dtype != np.float32 or images.size == 0:
            raise UsageError(
                f"images are {images.dtype}{list(images.shape)}",
                hint="give float32 [count, channels, height, width] with at least one image",
            )
        if labels.dtype != np.int32 or labels.shape != images.shape[:1]:
            raise UsageError(
                f"labels are {labels.dtype}{list(labels.shape)} for {len(images)} images",
                hint="give int32, one for each image",
            )

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.labels)


def load_samples(
    path: Path, input_shape: Shape, classes: int, *, limit: int | None = None
) -> Samples:
    """Reads training samples and fits them to a model's input.

    Formats:

    - MNIST's IDX: the images' file, with the labels' file next to it, or a folder with
      ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``. Both may be compressed (``.gz``).
    - CIFAR's binary version: a ``.bin`` file, or a folder with ``data_batch_*.bin`` (CIFAR-10) or
      ``train.bin`` (CIFAR-100; the fine labels are used).
    - ``.npz`` with ``images`` (or ``inputs``, ``x``, ``x_train``) and integer ``labels`` [n] (or ``targets``,
      ``y``, ``y_train``). Images are [n, c, h, w] or [n, h, w, c]: channels are the axis whose size is that of the
      model, 1 or 3; if both fit, [n, c, h, w] is assumed. Other samples, such as sequences, must have the
      model's shape, except for axes with one element.

    Nothing is unpickled. Pixels are scaled to [-1, 1]: bytes and floats in [0, 255], and floats in [0, 1]. Signed
    or larger floats, and integers other than bytes, are used as they are.

    Images of another size are resampled by nearest neighbour. One channel is repeated if the model has more. Three
    channels are averaged if it has one.

    Args:
        path: File or folder.
        input_shape: Shape of a sample of the model: channels, height and width of an image.
        classes: The model's classes; labels must lie in 0 .. classes - 1.
        limit: Keep at most this many samples, evenly spread over the file; None keeps all.

    Returns:
        The samples, in the file's order.

    Raises:
        UsageError: The path is missing, in an unknown format or damaged; images and labels differ in number; pixels
            or labels are out of range; channels do not fit; or the images would take more than ``LARGEST_BYTES``.
    """
    _check_request(input_shape, classes)
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} is too small", hint="keep at least one sample")
    try:
        images, labels = _read(path, _of_image(input_shape))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"{path}: cannot be read: {reason}", hint="check the path and its permissions"
        ) from error
    if len(images) != len(labels):
        raise UsageError(
            f"{path}: there are {len(images)} images but {len(labels)} labels",
            hint="give images and labels of the same set",
        )
    if images.size == 0:
        raise UsageError(
            f"{path}: images of shape {images.shape} are empty", hint="give at least one image"
        )
    if limit is not None and limit < len(images):
        chosen = np.arange(limit) * len(images) // limit
        images, labels = images[chosen], labels[chosen]
    _check_labels(path, labels, classes)
    _check_size(f"{path}: {len(images)}", len(images), input_shape)
    standardised = _standardised(path, images, _of_image(input_shape))
    return Samples(standardised.reshape(-1, *input_shape), labels.astype(np.int32))


@dataclass(frozen=True)
class DataSpec:
    """What a step takes for each sample.

    Attributes:
        shape: Sizes of one sample's part; empty for a number.
        classes: For integers: they lie in 0 .. classes - 1. None for floats.
        label: Whether the loss takes it, and not the model.
    """

    shape: Shape
    classes: int | None
    label: bool


def load_arrays(
    path: Path, wanted: Mapping[str, DataSpec], *, limit: int | None = None
) -> dict[str, Array]:
    """Reads the data of a step with any inputs and labels from an ``.npz`` of plain arrays.

    Each array has the name of what the step takes. The only input may also be called ``images``, ``inputs``, ``x``
    or ``x_train``; the only label ``labels``, ``targets``, ``y`` or ``y_train``. Values are used as they are.

    Args:
        path: The file.
        wanted: What the step takes, by name.
        limit: Keep at most this many samples, evenly spread over the file; None keeps all.

    Returns:
        Arrays by the names of ``wanted``, float32 or int32, [n, *shape].

    Raises:
        UsageError: The file is missing, damaged or no ``.npz``; an array is missing, or has another shape, type or
            number of samples; a value is not finite or out of range.
    """
    if not path.name.lower().endswith(".npz") or not path.is_file():
        raise UsageError(
            f"{path}: is no .npz file",
            hint="such a step takes an .npz with the arrays " + ", ".join(wanted),
        )
    names: dict[str, Sequence[str]] = {}
    for what, spec in wanted.items():
        alone = sum(other.label == spec.label for other in wanted.values()) == 1
        names[what] = (what, *_ARRAYS["labels" if spec.label else "images"]) if alone else (what,)
    found = {
        what: _checked(f"{path}: {what}", array, wanted[what])
        for what, array in _npz_arrays(path, names).items()
    }
    counts = {len(array) for array in found.values()}
    if len(counts) > 1 or counts == {0}:
        raise UsageError(
            f"{path}: arrays have {', '.join(map(str, sorted(counts)))} samples",
            hint="give as many of each, and at least one",
        )
    (count,) = counts
    if limit is not None and limit < count:
        chosen = np.arange(limit) * count // limit
        found = {what: array[chosen] for what, array in found.items()}
    return found


def _checked(what: str, array: Array, spec: DataSpec) -> Array:
    """An array of samples in the shape and type that a step takes."""
    if array.ndim < 1 or [size for size in array.shape[1:] if size > 1] != [
        size for size in spec.shape if size > 1
    ]:
        raise UsageError(
            f"{what} is of shape {array.shape}", hint=f"give (n, {', '.join(map(str, spec.shape))})"
        )
    if array.dtype.kind not in ("biu" if spec.classes is not None else "biuf"):
        wanted = "floats" if spec.classes is None else "whole numbers"
        raise UsageError(f"{what} is {array.dtype}", hint=f"give {wanted}")
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if spec.classes is not None and not 0 <= low <= high < spec.classes:
        raise UsageError(
            f"{what} reaches from {low:g} to {high:g}",
            hint=f"give whole numbers from 0 to {spec.classes - 1}",
        )
    _check_finite(what, low, high)
    dtype = np.float32 if spec.classes is None else np.int32
    return array.reshape(-1, *spec.shape).astype(dtype)


def generated_samples(count: int, input_shape: Shape, classes: int, seed: int) -> Samples:
    """Makes a data set that can be learned: a smooth random pattern for each class, plus noise.

    Pattern and noise have the same power. The images have approximately mean 0 and variance 1. Classes are equally
    frequent, up to one sample. The same arguments give the same samples.

    Args:
        count: Number of samples, at least 1.
        input_shape: Shape of a sample of the model: channels, height and width of an image.
        classes: Number of classes, at least 1.
        seed: Seed of the generator, not negative.

    Returns:
        The samples, in random order of classes.

    Raises:
        UsageError: A size is below 1, ``seed`` is negative or the images would take more than ``LARGEST_BYTES``.
    """
    _check_request(input_shape, classes)
    if count < 1:
        raise UsageError(f"{count} samples cannot be generated", hint="ask for at least 1")
    _check_size(str(count), count, input_shape)
    generator = _generator(seed)
    channels, *size = _of_image(input_shape)
    rows, columns = (_cosines(length) for length in size)
    amplitudes = generator.normal(size=(classes, channels, _WAVES, _WAVES))
    energy = (rows @ rows.T @ amplitudes @ columns @ columns.T * amplitudes).sum(axis=(1, 2, 3))
    amplitudes *= np.sqrt(0.5 * math.prod(input_shape) / energy)[:, None, None, None]
    labels = generator.permutation(np.arange(count) % classes).astype(np.int32)
    images = generator.standard_normal((count, channels, *size), np.float32)
    images *= np.float32(math.sqrt(0.5))
    for start in range(0, count, _CHUNK):
        chosen = labels[start : start + _CHUNK]
        patterns = rows.T @ amplitudes[chosen] @ columns
        images[start : start + _CHUNK] += patterns.astype(np.float32)
    return Samples(images.reshape(-1, *input_shape), labels)


def batches(
    samples: Samples, batch: int, seed: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Yields full batches without end, from samples shuffled again in each epoch.

    No sample occurs twice in an epoch. Samples that are left at its end and do not fill a batch are skipped; the
    next shuffle skips others.

    Args:
        samples: The samples.
        batch: Number of samples in a batch, at least 1.
        seed: Seed of the shuffle, not negative. The same seed gives the same batches.

    Returns:
        An endless iterator of images, float32 [batch, c, h, w], and labels, int32 [batch]. Each is a copy.

    Raises:
        UsageError: ``batch`` is below 1 or above the number of samples, or ``seed`` is negative.
    """
    chosen = batch_orders(samples.count, batch, seed)
    return ((samples.images[some], samples.labels[some]) for some in chosen)


def batch_orders(count: int, batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yields the numbers of the samples of each batch without end, as ``batches`` takes them.

    Args:
        count: Number of samples.
        batch: Number of samples in a batch, at least 1.
        seed: Seed of the shuffle, not negative.

    Raises:
        UsageError: As ``batches``.
    """
    if batch < 1:
        raise UsageError(f"batch={batch} is too small", hint="batch starts at 1")
    if count < batch:
        raise UsageError(
            f"{count} samples do not fill a batch of {batch}",
            hint=f"use a batch of at most {count}, or more samples",
        )
    return _epochs(count, batch, _generator(seed))


def _epochs(count: int, batch: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        order = generator.permutation(count)
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch]


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", hint="use 0 or more")
    return np.random.default_rng(seed)


def _cosines(length: int) -> NDArray[np.float64]:
    """Returns the longest cosines over ``length`` pixels, [waves, length]; the first is constant."""
    places = (np.arange(length) + 0.5) / length
    return np.cos(np.pi * np.arange(_WAVES)[:, None] * places)


def _of_image(input_shape: Shape) -> Shape:
    return (1,) * (IMAGE_AXES - len(input_shape)) + tuple(input_shape)


def _check_request(input_shape: Shape, classes: int) -> None:
    if min(*input_shape, classes) < 1:
        raise UsageError(
            f"samples of shape {input_shape} in {classes} classes are impossible",
            hint="sizes and classes start at 1",
        )


def _check_size(what: str, count: int, input_shape: Shape) -> None:
    each = 4 * math.prod(input_shape)
    if count * each > LARGEST_BYTES:
        text = "x".join(map(str, input_shape))
        raise UsageError(
            f"{what} samples of {text} take {count * each / 2**30:.1f} GiB, "
            f"more than {LARGEST_BYTES / 2**30:g} GiB",
            hint=f"use at most {LARGEST_BYTES // each} samples, or a model with a smaller input",
        )


def _check_labels(path: Path, labels: Array, classes: int) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise UsageError(f"{path}: label {low} is negative", hint="labels count classes from 0")
    if high >= classes:
        raise UsageError(
            f"{path}: labels reach {high} but the model has {classes} classes",
            hint=f"the data needs {high + 1} classes",
        )


def _read(path: Path, input_shape: Shape) -> tuple[Array, Array]:
    """Returns images [n, c, h, w], bytes or floats, and integer labels [n]."""
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise UsageError(f"{path}: there is no such file", hint=f"give {FORMATS}")
    name = path.name.lower()
    with open_file(path) as file:
        head = file.read(2)
    if name.endswith((".pkl", ".pickle")) or (head[:1] == b"\x80" and 2 <= head[-1] <= 5):
        raise _pickled(path)
    if name.endswith(_ARCHIVES):
        raise UsageError(f"{path}: is a packed archive", hint="unpack it and give the folder")
    if name.endswith(".npz"):
        return _read_npz(path, input_shape)
    if name.endswith(".bin"):
        return _read_cifar((path,))
    return _read_idx(path)


def _read_folder(folder: Path) -> tuple[Array, Array]:
    for name in ("train-images-idx3-ubyte", "train-images.idx3-ubyte"):
        for images in (folder / name, folder / f"{name}.gz"):
            if images.is_file():
                return _read_idx(images)
    files = sorted(folder.glob("data_batch_*.bin")) or sorted(folder.glob("train.bin"))
    if files:
        return _read_cifar(tuple(files))
    if any((folder / name).is_file() for name in _PYTHON_CIFAR):
        raise _pickled(folder)
    raise UsageError(
        f"{folder}: has neither train-images-idx3-ubyte[.gz] nor data_batch_*.bin nor train.bin",
        hint=f"give {FORMATS}",
    )


def _pickled(path: Path) -> UsageError:
    return UsageError(
        f"{path}: is pickled, as CIFAR's Python version is, and unpickling can run any code",
        hint="use CIFAR's binary version, such as cifar-10-binary.tar.gz, unpacked",
    )


def _read_idx(path: Path) -> tuple[Array, Array]:
    images = _idx_array(path, _IDX_IMAGES, axes=3)
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    plain = path.with_name(name.removesuffix(".gz"))
    choices = (path.with_name(name), plain, plain.with_name(f"{plain.name}.gz"))
    labels = next((choice for choice in choices if choice != path and choice.is_file()), None)
    if labels is None:
        raise UsageError(
            f"{path}: its labels are missing", hint=f"put {plain.name} or {plain.name}.gz beside it"
        )
    return images[:, None], _idx_array(labels, _IDX_LABELS, axes=1)


def _idx_array(path: Path, magic: int, axes: int) -> NDArray[np.uint8]:
    """Reads an IDX file of unsigned bytes, compressed or not."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            return _idx_content(path, stream, magic, axes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: is damaged: {error}", hint="download it again") from error


def _idx_content(
    path: Path, stream: IO[bytes] | gzip.GzipFile, magic: int, axes: int
) -> NDArray[np.uint8]:
    head = _bytes(stream, 4 * (1 + axes))
    if len(head) >= 4 and struct.unpack(">I", head[:4])[0] != magic:
        raise UsageError(
            f"{path}: starts with {bytes(head[:4]).hex()}, not with IDX's {magic:08x}",
            hint=f"give {FORMATS}",
        )
    if len(head) < 4 * (1 + axes):
        raise _wrong_length(path, "its header is cut short")
    sizes = struct.unpack(f">{axes}I", head[4:])
    expected = math.prod(sizes)
    content = _bytes(stream, min(expected, LARGEST_BYTES) + 1)
    if len(content) != expected:
        found = f"at least {expected + 1}" if len(content) > expected else str(len(content))
        raise _wrong_length(path, f"{list(sizes)} bytes are announced, {found} found")
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _bytes(stream: IO[bytes] | gzip.GzipFile, most: int) -> bytearray:
    """Reads up to ``most`` bytes in pieces, since a damaged header may announce any number."""
    content = bytearray()
    while len(content) < most and (piece := stream.read(min(_PIECE, most - len(content)))):
        content += piece
    return content


def _wrong_length(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: has the wrong length: {what}", hint="download it again")


def _read_cifar(paths: tuple[Path, ...]) -> tuple[Array, Array]:
    """Reads files of records: one label byte, or a coarse and a fine one, then three 32x32 planes."""
    pixels = math.prod(_CIFAR_SHAPE)
    images, labels = [], []
    for path in paths:
        content = np.frombuffer(read_bytes(path, LARGEST_BYTES), np.uint8)
        fitting = [extra for extra in (1, 2) if content.size % (extra + pixels) == 0]
        if not fitting or content.size == 0:
            raise _wrong_length(
                path,
                f"{content.size} bytes are not whole records of {pixels + 1} (CIFAR-10) "
                f"or {pixels + 2} (CIFAR-100)",
            )
        extra = fitting[-1] if path.name in ("train.bin", "test.bin") else fitting[0]
        records = content.reshape(-1, extra + pixels)
        labels.append(records[:, extra - 1])
        images.append(records[:, extra:].reshape(-1, *_CIFAR_SHAPE))
    return np.concatenate(images), np.concatenate(labels)


def _npz_arrays(path: Path, names: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """Returns plain arrays of an .npz, each by the first of its names that is there."""
    arrays: dict[str, Array] = {}
    try:
        with open_file(path) as stream, np.load(stream, allow_pickle=False) as file:
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            if unpacked > LARGEST_BYTES:
                raise UsageError(
                    f"{path}: unpacks to {unpacked} bytes, more than {LARGEST_BYTES}",
                    hint="give fewer samples",
                )
            for what, some in names.items():
                if name := next((name for name in some if name in file), None):
                    arrays[what] = file[name]
    except (OSError, UsageError):
        raise
    except Exception as error:  # numpy and zipfile raise many types.
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{path}: is no .npz of plain arrays: {reason}", hint="write it with numpy.savez"
        ) from error
    if missing := [what for what in names if what not in arrays]:
        plain = all(what.isidentifier() for what in names)
        listed = ", ".join(f"{what}=..." if plain else f'"{what}": ...' for what in names)
        listed = listed if plain else f"**{{{listed}}}"
        others = {" or ".join(some[1:]) for some in names.values() if some[1:]}
        raise UsageError(
            f"{path}: has no array {' and no array '.join(missing)}",
            hint=f"write it with numpy.savez(path, {listed})"
            + "".join(f"; {some} will do" for some in sorted(others)),
        )
    return arrays


def _read_npz(path: Path, input_shape: Shape) -> tuple[Array, Array]:
    arrays = _npz_arrays(path, _ARRAYS)
    images, labels = arrays["images"], arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UsageError(
            f"{path}: labels are {labels.dtype}{list(labels.shape)}",
            hint="labels must be whole numbers, [n]",
        )
    if images.ndim < 1 or images.dtype.kind not in "uif":
        raise UsageError(
            f"{path}: images are {images.dtype}{list(images.shape)}",
            hint="give whole numbers or floats",
        )
    same = [s for s in images.shape[1:] if s > 1] == [s for s in input_shape if s > 1]
    if images.ndim == 4 and not (same and {1, 3, input_shape[0]}.isdisjoint(images.shape[1::2])):
        last = _channels_last(images, input_shape)
        return (images.transpose(0, 3, 1, 2) if last else images), labels
    # Sequences and the like: the model's own shape, except for axes with one element.
    if not same:
        axes = images.ndim - 1
        added = axes < len(input_shape) and set(input_shape[: len(input_shape) - axes]) == {1}
        wanted = input_shape[-axes:] if added and axes else input_shape
        raise UsageError(
            f"{path}: a sample is of shape {images.shape[1:]}, and the model takes {wanted}",
            hint="give samples of the model's shape (axes of one element may be left out), or images [n, c, h, w]",
        )
    return images.reshape(-1, *input_shape), labels


def _channels_last(images: Array, input_shape: Shape) -> bool:
    """Returns whether images are [n, h, w, c] rather than [n, c, h, w], by the model's whole shape if it fits."""
    c, h, w = input_shape
    if images.shape[1:] in ((c, h, w), (h, w, c)):
        return images.shape[1:] != (c, h, w)
    usual = (c, 1, 3)
    return images.shape[1] not in usual and images.shape[3] in usual


def _standardised(path: Path, images: Array, input_shape: Shape) -> NDArray[np.float32]:
    """Returns the images [n, c, h, w] in ``input_shape``, scaled to [-1, 1]."""
    channels, *size = input_shape
    found = images.shape[1]
    if not (found in (1, channels) or (found, channels) == (3, 1)):
        raise UsageError(
            f"{path}: images have {found} channels, the model takes {channels}",
            hint=f"give images with {channels} channels or one",
        )
    if list(images.shape[2:]) != size:
        LOGGER.warning(
            "%s: images of %s pixels are resampled to %s",
            path,
            "x".join(map(str, images.shape[2:])),
            "x".join(map(str, size)),
        )
    scale, middle = _scale(path, images)
    rows, columns = (
        (2 * np.arange(target) + 1) * source // (2 * target)
        for source, target in zip(images.shape[2:], size, strict=True)
    )
    result = np.empty((len(images), *input_shape), np.float32)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK][:, :, rows[:, None], columns].astype(np.float32)
        if found > channels:
            chunk = chunk.mean(axis=1, keepdims=True)
        result[start : start + _CHUNK] = (chunk * scale - middle) / (middle or np.float32(1))
    return result


def _scale(path: Path, images: Array) -> tuple[np.float32, np.float32]:
    """Returns the factor for values, and the middle of their range; 0 leaves them as they are."""
    half = np.float32(0.5)
    if images.dtype == np.uint8:
        return np.float32(1 / 255), half
    low, high = float(images.min()), float(images.max())
    _check_finite(f"{path}: values", low, high)
    if images.dtype.kind != "f" or low < 0.0 or high > 255.0:
        return np.float32(1), np.float32(0)  # Not pixels, or already scaled.
    return np.float32(1.0 if high <= 1.0 else 1 / 255), half


def _check_finite(what: str, low: float, high: float) -> None:
    """Refuses values of which the least and the largest are given; both are NaN if any value is."""
    if not (abs(low) <= _LARGEST_VALUE and abs(high) <= _LARGEST_VALUE):
        raise UsageError(
            f"{what} reach from {low:g} to {high:g}",
            hint=f"give finite ones of at most {_LARGEST_VALUE:g}",
        )
