"""Reads the files in a folder that others may write to. It follows no link, and opens only listed files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autotune.compiler.export.findings import FileFinding
from autotune.compiler.export.objects import Report

_CHUNK_BYTES = 1 << 20
_DEEPEST = 32
_LONGEST = 1024
_LARGEST_BYTES = 2 << 30


@dataclass(frozen=True)
class Entry:
    """A file or folder below a folder.

    Attributes:
        name: Its relative path; with a slash at the end if it is a folder without listed files.
        status: `file`; `unlisted`; or why a listed file cannot be used: `unreadable`, `not a file` or `not a
            folder`, such as a link, a pipe or a device.
        descriptor: Descriptor of the open file. It is closed when the next entry is requested.
    """

    name: str
    status: str
    descriptor: int | None = None


def is_plain(name: str) -> bool:
    """Returns whether a name is a relative path in normal form that stays inside its folder."""
    path = PurePosixPath(name)
    return (
        0 < len(name) <= _LONGEST
        and name.isprintable()
        and "\\" not in name
        and not path.is_absolute()
        and path.as_posix() == name
        and ".." not in path.parts
        and 0 < len(path.parts) <= _DEEPEST
    )


def folders_of(listed: Collection[str]) -> set[str]:
    """Returns the folders of files."""
    parents = (parent for name in listed for parent in PurePosixPath(name).parents)
    return {parent.as_posix() for parent in parents} - {"."}


def entries(folder: Path, listed: Collection[str]) -> Generator[Entry]:
    """Yields the entries below a folder, in no order. Folders without listed files are not searched.

    Raises:
        OSError: The folder cannot be read.
    """
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield from _entries(top, "", listed, folders_of(listed))


def _entries(
    folder: int, prefix: str, listed: Collection[str], folders: Collection[str]
) -> Iterator[Entry]:
    try:
        for found in os.listdir(folder):
            name = prefix + found
            if name in folders:
                try:
                    inner = os.open(
                        found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder
                    )
                except OSError:
                    yield Entry(name, "not a folder")
                    continue
                yield from _entries(inner, f"{name}/", listed, folders)
            elif name not in listed:
                is_folder = stat.S_ISDIR(os.lstat(found, dir_fd=folder).st_mode)
                shown = "".join(one if one.isprintable() else "?" for one in name)
                yield Entry(f"{shown}/" if is_folder else shown, "unlisted")
            else:
                yield from _listed(folder, found, name)
    finally:
        os.close(folder)


def _listed(folder: int, found: str, name: str) -> Iterator[Entry]:
    try:
        file = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        yield Entry(name, "not a file" if _is_odd(folder, found) else "unreadable")
        return
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            yield Entry(name, "file", file)
        else:
            yield Entry(name, "not a file")
    finally:
        os.close(file)


def _is_odd(folder: int, found: str) -> bool:
    return not stat.S_ISREG(os.lstat(found, dir_fd=folder).st_mode)


def compared(
    folder: Path,
    listed: Mapping[str, str],
    ignored: str,
    target: Path | None = None,
    report: Report = lambda phase, done, total: None,
) -> list[FileFinding]:
    """Compares files with their list, and copies them where a target is given.

    The copy has the compared content, even if the folder changes.

    Args:
        folder: The folder of the files.
        listed: SHA-256 of each file in hexadecimal, by path.
        ignored: A file that may be there although it is not listed.
        target: A private folder, which is made; None to copy nothing.
        report: Receives progress, in files.

    Returns:
        What differs from the list, sorted by name. Files of more than 2 GiB are not read: no export has one.

    Raises:
        OSError: The folder cannot be read, or the target cannot be written.
    """
    if target:
        for name in ("", *folders_of(listed)):
            (target / name).mkdir(parents=True, exist_ok=True)
    found: dict[str, str] = {}
    with closing(entries(folder, listed)) as below:
        for one in below:
            report("files", len(found.keys() & listed.keys()), len(listed))
            status = one.status
            if one.descriptor is not None:
                copy = target / one.name if target else None
                same = _digest(one.descriptor, copy) == listed[one.name]
                status = "right" if same else "changed"
            found[one.name] = status
    missing = dict.fromkeys(listed.keys() - found.keys(), "missing")
    found.pop(ignored, None)
    return [
        FileFinding(name, status)
        for name, status in sorted((found | missing).items())
        if status != "right"
    ]


def _digest(source: int, target: Path | None) -> str:
    """Returns the SHA-256 of an open file in hexadecimal, and copies it; empty if it is too large."""
    digest = hashlib.sha256()
    left = _LARGEST_BYTES
    with target.open("wb") if target else nullcontext() as file:
        if os.fstat(source).st_size > left:
            return ""
        while chunk := os.read(source, _CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:  # It grows.
                return ""
            digest.update(chunk)
            if file is not None:
                file.write(chunk)
    if target:
        target.chmod(0o755 if os.fstat(source).st_mode & stat.S_IXUSR else 0o644)
    return digest.hexdigest()
