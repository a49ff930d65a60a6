"""A generated data set that can be learned."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.data.samples import (
    Samples,
    Shape,
    check_request,
    check_size,
    generator_of,
    of_image,
)

_WAVES = 4  # Number of cosines along each axis of a generated pattern.
_CHUNK = 256  # Number of images that are made at once.


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
    check_request(input_shape, classes)
    if count < 1:
        raise UsageError(f"{count} samples cannot be generated", hint="ask for at least 1")
    check_size(str(count), count, input_shape)
    generator = generator_of(seed)
    channels, *size = of_image(input_shape)
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


def _cosines(length: int) -> NDArray[np.float64]:
    """Returns the longest cosines over ``length`` pixels, [waves, length]; the first is constant."""
    places = (np.arange(length) + 0.5) / length
    return np.cos(np.pi * np.arange(_WAVES)[:, None] * places)
