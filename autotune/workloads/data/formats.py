"""File formats of training data: MNIST's IDX, CIFAR's binary version, and .npz. Nothing is unpickled."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

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


def read_images(path: Path, input_shape: Shape, limit: int | None = None) -> tuple[Array, Array]:
    """Reads a file or folder of images and labels.

    Args:
        path: A file in one of the formats, or a folder with such files.
        input_shape: Shape of a sample of the model; of an image it decides which axis of an .npz has channels.
        limit: Of an .npz, read at most this many samples, evenly spread over the file; None reads all.

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
        return _read_npz(path, input_shape, limit)
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


def npz_arrays(
    path: Path, names: Mapping[str, Sequence[str]], limit: int | None = None
) -> dict[str, Array]:
    """Returns plain arrays of an .npz, each by the first of its names that is there.

    Args:
        path: The file.
        names: Names to look for, by what they stand for.
        limit: Keep at most this many samples, evenly spread; the others are not kept in memory. None keeps all.

    Raises:
        UsageError: An array is missing, arrays have unlike numbers of samples, or the file is damaged or too large.
        OSError: It cannot be read.
    """
    arrays: dict[str, Array] = {}
    try:
        with open_file(path) as stream, zipfile.ZipFile(stream) as file:
            unpacked = sum(entry.file_size for entry in file.infolist())
            if unpacked > LARGEST_BYTES:
                raise UsageError(
                    f"{path}: unpacks to {unpacked} bytes, more than {LARGEST_BYTES}",
                    hint="give fewer samples",
                )
            there = set(file.namelist())
            members = {
                what: next((f"{name}.npy" for name in some if f"{name}.npy" in there), "")
                for what, some in names.items()
            }
            members = {what: member for what, member in members.items() if member}
            counts = {what: _samples(file, member) for what, member in members.items()}
            if len(members) == len(names) and len(set(counts.values())) > 1:
                found = " but ".join(f"{count} {what}" for what, count in counts.items())
                raise UsageError(
                    f"{path}: there are {found}", hint="give as many of each, and at least one"
                )
            for what, member in members.items():
                arrays[what] = _array(file, member, limit)
    except (OSError, UsageError):
        raise
    except Exception as error:  # numpy and zipfile raise many types.
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{path} is not an .npz file of plain arrays: {reason}",
            hint="write it with numpy.savez",
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


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads an array's shape, whether its first axis varies fastest, and its type. Its data come next."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"an array is of version {version}")
    return read(stream)


def _samples(file: zipfile.ZipFile, member: str) -> int:
    """Returns the number of samples of an array; 1 if it is a single number."""
    with file.open(member) as stream:
        shape, _, _ = _header(stream)
    return shape[0] if shape else 1


def _array(file: zipfile.ZipFile, member: str, limit: int | None) -> Array:
    """Reads an array, or some of its samples."""
    with file.open(member) as stream:
        shape, first_is_fastest, dtype = _header(stream)
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        plain = shape and row_bytes and not dtype.hasobject and not first_is_fastest
        if plain and limit is not None and limit < shape[0] <= LARGEST_BYTES:
            chosen = np.arange(limit) * shape[0] // limit
            return _rows(stream, chosen, row_bytes).view(dtype).reshape(limit, *shape[1:])
    with file.open(member) as stream:
        whole: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return whole


def _rows(stream: IO[bytes], chosen: NDArray[np.int64], row_bytes: int) -> NDArray[np.uint8]:
    """Reads some rows, by their ascending numbers."""
    kept = np.empty((len(chosen), row_bytes), np.uint8)
    at_once = max(1, _PIECE // row_bytes)
    start = done = 0
    while done < len(chosen):
        block = np.frombuffer(_bytes(stream, at_once * row_bytes), np.uint8)
        rows = block[: block.size // row_bytes * row_bytes].reshape(-1, row_bytes)
        inside = chosen[done : np.searchsorted(chosen, start + len(rows))] - start
        if len(rows) == 0 or (len(inside) == 0 and len(rows) < at_once):
            raise ValueError("an array ends early")
        kept[done : done + len(inside)] = rows[inside]
        done += len(inside)
        start += len(rows)
    return kept


def _read_npz(path: Path, input_shape: Shape, limit: int | None) -> tuple[Array, Array]:
    arrays = npz_arrays(path, ARRAYS, limit)
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
