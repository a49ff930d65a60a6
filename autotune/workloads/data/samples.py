"""Samples of training data, and checks of their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

LARGEST_BYTES = 4 * 2**30  # Of images, as float32 in the model's input size.
IMAGE_AXES = 3
"""Axes of an image: channels, height and width."""
Shape = tuple[int, ...]
"""Shape of a sample. With more or fewer axes than an image it is treated as one; see `of_image`."""
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
        if images.ndim < 2 or images.dtype != np.float32 or images.size == 0:
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


def generator_of(seed: int) -> np.random.Generator:
    """Returns numpy's generator with a seed.

    Raises:
        UsageError: The seed is negative.
    """
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", hint="use 0 or more")
    return np.random.default_rng(seed)


def of_image(input_shape: Shape) -> Shape:
    """Returns the shape of a sample as an image: leading sizes of 1 are added, or the first axes are joined."""
    if len(input_shape) > IMAGE_AXES:
        return (math.prod(input_shape[:-2]), *input_shape[-2:])
    return (1,) * (IMAGE_AXES - len(input_shape)) + tuple(input_shape)


def check_request(input_shape: Shape, classes: int) -> None:
    """Refuses sizes and numbers of classes below 1.

    Raises:
        UsageError: One is below 1.
    """
    if min(*input_shape, classes) < 1:
        raise UsageError(
            f"samples of shape {input_shape} in {classes} classes are impossible",
            hint="sizes and classes start at 1",
        )


def check_size(what: str, count: int, input_shape: Shape) -> None:
    """Refuses samples that take more than ``LARGEST_BYTES`` as float32.

    Args:
        what: The samples, for the message.
        count: Number of samples.
        input_shape: Shape of a sample.

    Raises:
        UsageError: They take more.
    """
    each = 4 * math.prod(input_shape)
    if count * each > LARGEST_BYTES:
        text = "x".join(map(str, input_shape))
        raise UsageError(
            f"{what} samples of {text} take {count * each / 2**30:.1f} GiB, "
            f"more than {LARGEST_BYTES / 2**30:g} GiB",
            hint=f"use at most {LARGEST_BYTES // each} samples, or a model with a smaller input",
        )
