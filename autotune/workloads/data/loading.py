"""Training data from files, fitted to what a step takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.data.formats import ARRAYS, npz_arrays, read_images
from autotune.workloads.data.samples import (
    Array,
    Samples,
    Shape,
    check_request,
    check_size,
    of_image,
)

LOGGER = logging.getLogger("autotune.workloads")
_CHUNK = 256  # Number of images that are converted at once.
_LARGEST_VALUE = 1e30


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
    check_request(input_shape, classes)
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit} is too small", hint="keep at least one sample")
    try:
        images, labels = read_images(path, input_shape, limit)
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
            f"{path}: there are no samples in it, or empty ones", hint="give at least one"
        )
    if limit is not None and limit < len(images):
        chosen = np.arange(limit) * len(images) // limit
        images, labels = images[chosen], labels[chosen]
    _check_labels(path, labels, classes)
    check_size(f"{path}: {len(images)}", len(images), input_shape)
    standardised = _standardised(path, images, of_image(input_shape))
    return Samples(standardised.reshape(-1, *input_shape), labels.astype(np.int32))


@dataclass(frozen=True)
class DataSpec:
    """What a step takes for each sample.

    Attributes:
        shape: Sizes of one sample's part; empty for a number.
        classes: For whole numbers: they lie in 0 .. classes - 1. None for any numbers.
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
        Arrays by the names of ``wanted``, [n, *shape]: int32 where they are whole numbers, else float32.

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
        names[what] = (what, *ARRAYS["labels" if spec.label else "images"]) if alone else (what,)
    found = {
        what: _checked(f"{path}: {what}", array, wanted[what])
        for what, array in npz_arrays(path, names, limit).items()
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
    if array.dtype.kind not in "biuf" or (spec.classes is not None and not _whole(array)):
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


def _whole(array: Array) -> bool:
    return array.dtype.kind in "biu" or not np.any(array % 1)


def _check_labels(path: Path, labels: Array, classes: int) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise UsageError(f"{path}: label {low} is negative", hint="labels count classes from 0")
    if high >= classes:
        raise UsageError(
            f"{path}: labels reach {high} but the model has {classes} classes",
            hint=f"the data needs {high + 1} classes",
        )


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
    # Images in the form of the result are overwritten: they may take a gigabyte.
    fit = images.dtype == np.float32 and images.shape[1:] == input_shape and images.flags.writeable
    result = images if fit else np.empty((len(images), *input_shape), np.float32)
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
