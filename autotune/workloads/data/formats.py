"""File formats of training data: MNIST's IDX, CIFAR's binary version, and .npz. Nothing is unpickled."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.reading import open_file, read_bytes
from autotune.workloads.data.samples import IMAGE_AXES, LARGEST_BYTES, Array, Shape, of_image

FORMATS = (
    "MNIST's IDX files, CIFAR's binary version (.bin), or an .npz with the arrays images and labels"
)
ARRAYS = {
    "images": ("images", "inputs", "x", "x_train"),
    "labels": ("labels", "targets", "y", "y_train"),
}
"""Names of arrays in an .npz."""
_IDX_IMAGES, _IDX_LABELS = 0x0803, 0x0801  # Unsigned bytes, in three axes and in one.
_CIFAR_SHAPE = (3, 32, 32)
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
_PYTHON_CIFAR = ("data_batch_1", "batches.meta", "meta")  # Files of CIFAR's Python version.
_PIECE = 2**20  # Number of bytes that are read at once.


def read_images(path: Path, input_shape: Shape) -> tuple[Array, Array]:
    """Reads a file or folder of images and labels.

    Args:
        path: A file in one of the formats, or a folder with such files.
        input_shape: Shape of a sample of the model; of an image it decides which axis of an .npz has channels.

    Returns:
        Images [n, c, h, w], bytes or floats, and integer labels [n]. Other samples are in the shape of images; see
        `of_image`.

    Raises:
        UsageError: The format is unknown, or the file is damaged or too large.
        OSError: It cannot be read.
    """
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


def npz_arrays(path: Path, names: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """Returns plain arrays of an .npz, each by the first of its names that is there.

    Args:
        path: The file.
        names: Names to look for, by what they stand for.

    Raises:
        UsageError: An array is missing, or the file is damaged or too large.
        OSError: It cannot be read.
    """
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
    arrays = npz_arrays(path, ARRAYS)
    image = of_image(input_shape)
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
    drawn = len(input_shape) <= IMAGE_AXES and images.ndim == IMAGE_AXES + 1
    if drawn and not (same and {1, 3, image[0]}.isdisjoint(images.shape[1::2])):
        last = _channels_last(images, image)
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
    return images.reshape(-1, *image), labels


def _channels_last(images: Array, input_shape: Shape) -> bool:
    """Returns whether images are [n, h, w, c] rather than [n, c, h, w], by the model's whole shape if it fits."""
    c, h, w = input_shape
    if images.shape[1:] in ((c, h, w), (h, w, c)):
        return images.shape[1:] != (c, h, w)
    usual = (c, 1, 3)
    return images.shape[1] not in usual and images.shape[3] in usual
