"""`--cache-features`: the results of frozen layers are computed once for each sample, and kept in a file.

A file is a line of JSON, padded to `_HEADER_BYTES`, and then records of one size: the digest of a sample, and its
features as float32 or int32. A record that was not written whole is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, UsageError
from autotune.measurement import median
from autotune.reading import Unreadable, is_version, parse_json, reason_of

if TYPE_CHECKING:
    from autotune.compiler.step import StepSession
    from autotune.workloads import Split, StepGraph

_VERSION = 1
_HEADER_BYTES, _DIGEST_BYTES = 256, 16
_MOST_SAMPLES = 4_000_000
_ALIKE = 1e-3
"""Largest difference of a sample's features in two batches, beside the largest feature."""
Feed = dict[str, NDArray[Any]]


class FeatureFile:
    """A file with the features of samples, which one process may use at a time.

    Args:
        path: The file; made if it does not exist.
        layers: Digest of the layers that compute the features.
        row_bytes: Bytes of a sample's features.

    Raises:
        UsageError: It is something else, of other layers, in use, or cannot be opened.
    """

    def __init__(self, path: Path, layers: str, row_bytes: int) -> None:
        self._path, self._row_bytes = path, row_bytes
        self._record = np.dtype([("sample", f"S{_DIGEST_BYTES}"), ("row", np.uint8, (row_bytes,))])
        self._file = _opened(path)
        try:
            self._numbers = self._read(layers)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file; what was added stays."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, sample: bytes) -> bool:
        return sample in self._numbers

    def row(self, sample: bytes) -> bytes:
        """Returns the features of a sample that is there."""
        at = _HEADER_BYTES + self._numbers[sample] * self._record.itemsize + _DIGEST_BYTES
        found = os.pread(self._file.fileno(), self._row_bytes, at)
        if len(found) != self._row_bytes:
            raise AutotuneError(f"{self._path} became shorter while it was used")
        return found

    def add(self, sample: bytes, row: bytes) -> None:
        """Adds the features of a sample.

        Raises:
            AutotuneError: The disk is full, or the file cannot be written.
        """
        number = len(self._numbers)
        if number >= _MOST_SAMPLES:
            return
        try:
            self._file.seek(_HEADER_BYTES + number * self._record.itemsize)
            self._file.write(sample + row)
            self._file.flush()
        except OSError as reason:
            raise AutotuneError(
                f"{self._path} cannot be written: {reason.strerror}",
                hint="free space there, or leave --cache-features out",
            ) from reason
        self._numbers[sample] = number

    def _read(self, layers: str) -> dict[bytes, int]:
        handle, size = self._file.fileno(), self._record.itemsize
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"--cache-features: {self._path} is in use by another process",
                hint="wait for it, or give another file",
            ) from None
        there = os.fstat(handle).st_size
        wanted = {"autotune_features": _VERSION, "layers": layers, "row_bytes": self._row_bytes}
        if there == 0:
            self._file.write(json.dumps(wanted).encode().ljust(_HEADER_BYTES - 1) + b"\n")
            self._file.flush()
            return {}
        try:
            found = parse_json(self._file.read(_HEADER_BYTES))
        except Unreadable:
            found = None
        if not isinstance(found, dict) or not is_version(found.get("autotune_features"), _VERSION):
            raise UsageError(
                f"--cache-features: {self._path} is there and holds no features",
                hint="give a file that does not exist yet",
            )
        if found != wanted:
            raise UsageError(
                f"--cache-features: {self._path} is of other layers, weights, batch or layout",
                hint="give another file, or delete this one",
            )
        count = (there - _HEADER_BYTES) // size
        if count > _MOST_SAMPLES:
            raise UsageError(
                f"--cache-features: {self._path} has more than {_MOST_SAMPLES:,} samples"
            )
        os.ftruncate(handle, _HEADER_BYTES + count * size)
        if count == 0:
            return {}
        records = np.memmap(self._file, self._record, "r", _HEADER_BYTES, (count,))
        return {
            bytes(sample).ljust(_DIGEST_BYTES, b"\0"): number
            for number, sample in enumerate(records["sample"])
        }


def _opened(path: Path) -> BinaryIO:
    """Opens a regular file, or makes it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason_of(reason)
        raise UsageError(f"--cache-features: {path} cannot be opened: {why}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UsageError(f"--cache-features: {path} is not a regular file")
    return os.fdopen(handle, "r+b")


class CachedFeatures:
    """What the steps after the frozen layers are given.

    Args:
        split: The step's parts.
        feeds: What the whole step would be given.
        values: First values of the step's persistent tensors.
        path: The file with features.
        session: Computes the features of a batch.

    Raises:
        UsageError: The features of a sample depend on the other samples of its batch, or the file is refused.
    """

    def __init__(
        self,
        split: Split,
        feeds: Iterator[Feed],
        values: Mapping[str, NDArray[Any]],
        path: Path,
        session: StepSession,
    ) -> None:
        self._split, self._feeds, self._session = split, feeds, session
        self._batch = split.training.batch
        self._tensors = [split.features.by_name[name] for name in split.names]
        self._seconds: list[float] = []
        self._reused = 0
        _check_samples(split)
        first = next(feeds)
        self._check_apart(first)
        row_bytes = sum(tensor.bytes for tensor in self._tensors) // self._batch
        self._file = FeatureFile(path, _digest(split.features, values), row_bytes)
        self._first: Feed | None = first

    def __iter__(self) -> CachedFeatures:
        return self

    def __next__(self) -> Feed:
        feed, self._first = self._first or next(self._feeds), None
        samples = [self._sample(feed, number) for number in range(self._batch)]
        rows: list[bytes] = [b""] * self._batch
        if not all(sample in self._file for sample in samples):
            begin = time.perf_counter()
            rows = self._computed(feed)
            self._seconds.append(time.perf_counter() - begin)
        for at, sample in enumerate(samples):
            if sample in self._file:
                self._reused += 1
                rows[at] = self._file.row(sample)
            else:
                self._file.add(sample, rows[at])
        given = self._features(rows)
        return {name: array for name, array in (feed | given).items() if name in self._wanted}

    @property
    def _wanted(self) -> Mapping[str, object]:
        return self._split.training.by_name

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def to_json(self) -> dict[str, Any]:
        """Returns how the features were come by, for a result."""
        return {
            "samples": len(self._file),
            "reused": self._reused,
            "batches_computed": len(self._seconds),
            "batch_ms": 1e3 * median(self._seconds) if self._seconds else None,
            "bytes": sum(tensor.bytes for tensor in self._tensors) // self._batch,
        }

    def _sample(self, feed: Feed, number: int) -> bytes:
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for name in self._split.data:
            digest.update(feed[name][number].tobytes())
        return digest.digest()

    def _computed(self, feed: Feed) -> list[bytes]:
        """The features of each sample of a batch."""
        self._session.run([feed])
        found = self._session.read(self._split.names)
        parts = [found[name].reshape(self._batch, -1) for name in self._split.names]
        return [b"".join(part[at].tobytes() for part in parts) for at in range(self._batch)]

    def _features(self, rows: Sequence[bytes]) -> Feed:
        whole = np.frombuffer(b"".join(rows), np.uint8).reshape(self._batch, -1)
        given, at = {}, 0
        for tensor in self._tensors:
            size = tensor.bytes // self._batch
            part = np.ascontiguousarray(whole[:, at : at + size])
            given[tensor.name] = part.view(tensor.dtype).reshape(tensor.shape)
            at += size
        return given

    def _check_apart(self, feed: Feed) -> None:
        """Refuses features that depend on the other samples of the batch.

        The batch moves up by one sample. Its features must move with it.
        """
        if self._batch == 1:
            return
        moved = dict(feed)
        for name in self._split.data:
            moved[name] = np.concatenate([feed[name][1:], np.zeros_like(feed[name][:1])])
        before, after = (self._floats(self._features(self._computed(f))) for f in (feed, moved))
        scale = max(1e-30, float(np.abs(before).max(initial=0.0)))
        if not float(np.abs(before[1:] - after[:-1]).max(initial=0.0)) <= _ALIKE * scale:
            raise UsageError(
                "--cache-features: the frozen layers mix the samples of a batch, as batch norm in training "
                "mode does",
                hint="put them into evaluation mode: --train frozen:eval",
            )

    def _floats(self, given: Feed) -> NDArray[np.float64]:
        """All features, with a row for each sample."""
        parts = [array.reshape(self._batch, -1).astype(np.float64) for array in given.values()]
        return np.nan_to_num(np.concatenate(parts, axis=1))


def split_of(graph: StepGraph) -> Split:
    """Returns the parts of a step, of which the first is to be cached.

    Raises:
        UsageError: No layer is frozen before those that train.
    """
    from autotune.workloads import split_at_features

    split = split_at_features(graph)
    if split is None:
        raise UsageError(
            f"--cache-features: {graph.name} has no frozen layers before those that train",
            hint="choose what trains, such as --train last:2",
        )
    return split


def _check_samples(split: Split) -> None:
    """Refuses data and features that are no sequence of samples."""
    batch = split.training.batch
    for name in split.data:
        shape = split.features.by_name[name].shape
        if not shape or shape[0] != batch:
            raise UsageError(
                f"--cache-features: {name} has no value for each sample of the batch",
                hint="leave --cache-features out",
            )
    for name in split.names:
        if split.features.by_name[name].elements % batch:
            raise UsageError(
                f"--cache-features: a frozen layer's result has {math.prod(split.features.by_name[name].shape)} "
                f"elements for {batch} samples",
                hint="leave --cache-features out",
            )


def _digest(graph: StepGraph, values: Mapping[str, NDArray[Any]]) -> str:
    """A digest of layers with their weights."""
    digest = hashlib.sha256()
    for node in graph.nodes:
        digest.update(repr((node.kernel.spec, node.kernel.role, node.inputs)).encode())
    for tensor in graph.tensors:
        if tensor.kind == "constant":
            digest.update(values[tensor.name].tobytes())
    return digest.hexdigest()
