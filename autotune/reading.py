"""Reads files from outside with limits: bytes, lines, nesting, memory and numbers.

A file made by somebody else can be hostile. Nothing here runs what it reads. Memory is bounded by the limits, which
are checked before a text is parsed. Refused content raises a one-line error that names the file.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from autotune.errors import AutotuneError, RecordError, UsageError, printable

T = TypeVar("T")
_MIB = 1 << 20

Seconds = Annotated[float, Field(strict=True, ge=1e-12, lt=1e9)]
"""A measured time. Times of less than a picosecond are refused, and times beyond 30 years."""
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 53)]
"""A number of things."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""Any finite number."""
Name = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
"""A name, a specification or another short text. A file path fits too."""


@dataclass(frozen=True)
class Limits:
    """How much of a file is read.

    Attributes:
        bytes: Bytes of the whole file, unpacked.
        line_bytes: Bytes of one line, if a file is read by lines; of the text, if it is one JSON value.
        lines: Number of lines.
        memory: Approximate bytes of memory for the values of one line or text; see `_memory`.
        all_memory: The same for all lines of a file, added up line by line.
        depth: Nesting of lists and objects. The limit is kept to within a factor of two.
        packed_ratio: How many times larger an unpacked file may be than the packed one, beyond the first 16 MiB.
        packed_bytes: Bytes of a packed file.
    """

    bytes: int
    line_bytes: int
    lines: int = 1_000_000
    memory: int = 64 * _MIB
    all_memory: int = 1536 * _MIB
    depth: int = 32
    packed_ratio: int = 100
    packed_bytes: int = 64 * _MIB


SMALL = Limits(bytes=4 * _MIB, line_bytes=4 * _MIB)
"""Files that people write by hand: spaces, targets, profiles, settings."""
DOCUMENT = Limits(bytes=64 * _MIB, line_bytes=64 * _MIB, memory=256 * _MIB)
"""One JSON value written by a program: results, plans, manifests."""
LINES = Limits(bytes=512 * _MIB, line_bytes=8 * _MIB)
"""JSON lines: events of runs, databases of records."""

_VALUE_BYTES = 40
"""Bytes of a number or a text, with its place in a list."""
_SIGN_BYTES = {b",": _VALUE_BYTES, b":": _VALUE_BYTES, b"[": 64, b"{": 200}
"""Approximate memory in CPython for each sign: one more value, a list, an object."""
_GZIP = b"\x1f\x8b"
_TOML_BYTES = _MIB
_CHUNK_BYTES = 1 << 16
_TOML_KEY = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY}){{{SMALL.depth}}}")
_MOST_DIGITS = 24
_LARGE_EXPONENT = re.compile(rb"[eE]\+?0*[1-9]\d\d")
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Unreadable(ValueError):  # noqa: N818  # what a text is, not what went wrong in the program
    """A text that is refused. The message gives the reason, without the file's name."""


class FromOutside(BaseModel):
    """Data from outside: an unknown key is refused, and so is a truth value where a number is wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth(cls, content: Any) -> Any:
        """Makes a truth value one that no number is read from: for Python, true is 1."""
        if not isinstance(content, dict):
            return content
        fields = cls.model_fields
        return {
            name: object() if isinstance(value, bool) and _is_no_truth(fields.get(name)) else value
            for name, value in content.items()
        }


def _is_no_truth(field: FieldInfo | None) -> bool:
    if field is None:
        return False
    return field.annotation is not bool and bool not in get_args(field.annotation)


def open_file(path: Path, error: type[AutotuneError] = UsageError) -> io.BufferedReader:
    """Opens a regular file for reading. Devices and pipes are refused, because they may never begin or end.

    Args:
        path: The file.
        error: The kind of error to raise.

    Raises:
        AutotuneError: Of that kind: there is no such file, it cannot be read, or it is not a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from reason
    except ValueError as reason:  # A NUL in the name.
        raise error(f"{str(path)!r} is not a file name: {reason}") from reason
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{path} is not a regular file", hint="give a file")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, limit: int, error: type[AutotuneError] = UsageError) -> bytes:
    """Reads a whole file of at most `limit` bytes.

    Raises:
        AutotuneError: Of the given kind: it cannot be read, is not a regular file, or is larger.
    """
    try:
        with open_file(path, error) as file:
            data = file.read(limit + 1)
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from reason
    if len(data) > limit:
        raise error(f"{path} is larger than {_size(limit)}")
    return data


def read_text(path: Path, limits: Limits, error: type[AutotuneError] = UsageError) -> str:
    """Reads a text file in UTF-8.

    Raises:
        AutotuneError: Of the given kind: as `read_bytes`, or it is not UTF-8.
    """
    try:
        return read_bytes(path, limits.bytes, error).decode()
    except UnicodeDecodeError as reason:
        raise error(f"{path} is not UTF-8 text: {reason.reason} at byte {reason.start}") from None


def parse_json(text: bytes | str, limits: Limits = DOCUMENT, *, nan_as_null: bool = False) -> Any:
    """Reads one JSON value from an untrusted text.

    Args:
        text: The text; bytes are UTF-8.
        limits: How large it may be.
        nan_as_null: Whether NaN and Infinity are read as null instead of being refused.

    Raises:
        Unreadable: It is not JSON, or exceeds a limit, or has a number that JSON does not allow (NaN), one of 1e100
            or more, or one with more than 24 digits in a row.
    """
    return _parsed(text, limits, nan_as_null=nan_as_null)[0]


def _parsed(text: bytes | str, limits: Limits, *, nan_as_null: bool) -> tuple[Any, int]:
    """Reads a value as `parse_json` does, and returns it with its approximate size in memory."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(data) > limits.line_bytes:
        raise Unreadable(f"it is larger than {_size(limits.line_bytes)}")
    # Only text outside of strings has a structure. Escaped quotes are removed first.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    outside = b'""'.join(plain.split(b'"')[::2]) if b'"' in plain else plain
    memory = _memory(outside) + len(data)
    if memory > limits.memory:
        raise Unreadable(f"its values take more than {_size(limits.memory)} of memory")
    if _deeper(outside, limits.depth):
        raise Unreadable(f"it is nested more than {limits.depth} deep")
    digits = outside.translate(_DIGITS_AS_ZEROS)
    if b"0" * (_MOST_DIGITS + 1) in digits or _LARGE_EXPONENT.search(outside):
        raise Unreadable("it has a number that is too large")
    if not nan_as_null and (b"NaN" in outside or b"Infinity" in outside):
        raise Unreadable("it has NaN or Infinity, which JSON does not allow")
    try:
        # For bytes, `json` would guess other encodings.
        value = json.loads(
            data.decode(),
            parse_constant=_null if nan_as_null else None,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except UnicodeDecodeError as reason:
        raise Unreadable(f"it is not UTF-8: {reason.reason} at byte {reason.start}") from None
    except ValueError as reason:
        raise Unreadable(str(reason)) from None
    if (b"\\ud" in data or b"\\uD" in data) and not _encodable(value):
        raise Unreadable("it has half of a surrogate pair, which is not a character")
    return value, memory


def read_json(
    path: Path,
    limits: Limits = DOCUMENT,
    error: type[AutotuneError] = UsageError,
    *,
    nan_as_null: bool = False,
) -> Any:
    """Reads a file that holds one JSON value.

    Raises:
        AutotuneError: Of the given kind: as `read_bytes` and `parse_json`.
    """
    data = read_bytes(path, limits.bytes, error)
    try:
        return parse_json(data, limits, nan_as_null=nan_as_null)
    except Unreadable as reason:
        raise error(f"{path} is not valid JSON: {reason}") from None


def typed(kind: type[T], value: Any) -> T:
    """Converts plain data to a dataclass or another type, and checks every field.

    Unknown fields are left out.

    Args:
        kind: The type; its annotations define the fields.
        value: The content of a JSON file.

    Raises:
        Unreadable: A field is missing or of another type; the message gives its place.
    """
    try:
        return cast(T, _adapter(cast(Hashable, kind)).validate_python(value))
    except ValidationError as reason:
        where, what = complaint(reason)
        raise Unreadable(f"{where or 'the whole'}: {what}") from None
    except RecursionError:
        raise Unreadable("it is nested too deep") from None


def complaint(error: ValidationError) -> tuple[str, str]:
    """Returns the place of the first thing that is wrong, as keys joined by dots, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    what = "is not a known key" if first["type"] == "extra_forbidden" else first["msg"]
    return ".".join(str(part)[:40] for part in first["loc"]), what


def is_version(value: Any, version: int) -> bool:
    """Returns whether a file's value is this version. True and 1.0, which are equal to 1 in Python, are not."""
    return type(value) is int and value == version


def reason_of(error: BaseException) -> str:
    """Returns an error's message for a reader: its first line, at most 200 characters, printable."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = text.partition("; use sys.set_int_max_str_digits")[0]  # Advice for programmers.
    return printable(text[:200])


@contextmanager
def reading(what: Path | str) -> Iterator[None]:
    """Turns errors during the use of a file's data into an error that the file is damaged.

    Args:
        what: The file or folder, for the message.

    Raises:
        RecordError: Data is missing or has another form.
    """
    try:
        yield
    except Unreadable as reason:
        raise RecordError(f"{what} is damaged: {reason}") from reason
    except KeyError as reason:
        raise RecordError(f"{what} is damaged: {str(reason)[:200]} is missing") from reason
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        ArithmeticError,
        csv.Error,
    ) as reason:
        raise RecordError(f"{what} is damaged: {reason_of(reason)}") from reason
    except RecursionError as reason:
        raise RecordError(f"{what} is damaged: it is nested too deep") from reason


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def read_toml(path: Path, error: type[AutotuneError] = UsageError) -> dict[str, Any]:
    """Reads a hand-written TOML file.

    Raises:
        AutotuneError: Of the given kind: it cannot be read, is not TOML, or exceeds a limit.
    """
    text = read_text(path, SMALL, error)
    try:
        return parse_toml(text)
    except Unreadable as reason:
        raise error(f"{path}: {reason}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Reads TOML from an untrusted text.

    Raises:
        Unreadable: It is not TOML, exceeds a limit, or has a number that is infinite or NaN.
    """
    if len(text) > _TOML_BYTES:
        raise Unreadable(f"it is larger than {_size(_TOML_BYTES)}")
    if _LONG_KEY.search(text):  # Parsing time grows with the square of a key's parts.
        raise Unreadable(f"it is nested more than {SMALL.depth} deep")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except ValueError as reason:  # From TOML, or from a number with thousands of digits.
        raise Unreadable(f"not valid TOML: {reason_of(reason)}") from None
    _check_values(content, SMALL.depth)
    return content


def lines(
    file: IO[bytes],
    limits: Limits = LINES,
    *,
    torn_end: bool = False,
    nan_as_null: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Reads JSON lines one after the other.

    Args:
        file: The file, open for reading.
        limits: How large it and its lines may be.
        torn_end: Whether to leave out a last line without its newline, which a kill cut short.
        nan_as_null: As for `parse_json`.

    Yields:
        The line's number, from 1, and its value.

    Raises:
        Unreadable: A line is not JSON, or exceeds a limit; the message has its number.
        OSError, EOFError, zlib.error: Errors of reading the file.
    """
    total = number = memory = 0
    while line := file.readline(limits.line_bytes + 1):
        number += 1
        total += len(line)
        if len(line) > limits.line_bytes:
            raise Unreadable(f"line {number} is longer than {_size(limits.line_bytes)}")
        if number > limits.lines:
            raise Unreadable(f"it has more than {limits.lines} lines")
        if total > limits.bytes:
            raise Unreadable(f"it is larger than {_size(limits.bytes)}")
        if torn_end and not line.endswith(b"\n"):
            return
        try:
            value, taken = _parsed(line, limits, nan_as_null=nan_as_null)
        except Unreadable as reason:
            raise Unreadable(f"line {number} is damaged: {reason}") from None
        memory += taken
        if memory > limits.all_memory:
            raise Unreadable(f"its values take more than {_size(limits.all_memory)} of memory")
        yield number, value


def packed_lines(path: Path, limits: Limits, error: type[AutotuneError]) -> Iterator[Any]:
    """Reads a gzipped file of JSON lines, one line after the other.

    Raises:
        AutotuneError: Of the given kind: it cannot be read, is damaged, exceeds a limit, or goes on after the end
            of what is packed.
    """
    with open_file(path, error) as packed:
        size = os.fstat(packed.fileno()).st_size
        if size > limits.packed_bytes:
            raise error(f"{path} is larger than {_size(limits.packed_bytes)}")
        most = min(limits.bytes, 16 * _MIB + limits.packed_ratio * size)
        own = replace(limits, bytes=most)
        try:
            if not packed.peek(2).startswith(_GZIP):
                raise Unreadable("it is not a gzip file")
            # Counting takes a hundredth of the time of parsing what would be refused at its end.
            if _unpacked_bytes(packed, most) > most:
                raise Unreadable(f"it is larger than {_size(most)}")
            with io.BufferedReader(_Unpacked(packed), _CHUNK_BYTES) as unpacked:
                for _, value in lines(unpacked, own):
                    yield value
        except zlib.error:
            raise error(f"{path} is damaged: it cannot be unpacked") from None
        except (OSError, EOFError, Unreadable) as reason:
            raise error(f"{path} is damaged: {reason}") from None


def _unpacked_bytes(packed: IO[bytes], most: int) -> int:
    """Counts the bytes of a gzipped file until there are more than `most`, and goes back to its beginning."""
    total = 0
    buffer = bytearray(_CHUNK_BYTES)
    unpacked = _Unpacked(packed)
    while total <= most and (count := unpacked.readinto(buffer)):
        total += count
    packed.seek(0)
    return total


class _Unpacked(io.RawIOBase):
    """The content of a gzipped file that is one stream, as gzip writes it. Nothing may follow the stream.

    Python's `gzip` reads a header byte by byte, accepts any number of streams, and zeros after them.

    Args:
        packed: The file.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer, and returns the number of bytes; 0 at the end.

        Raises:
            EOFError: The file ends within the stream.
            zlib.error: The stream is damaged.
            Unreadable: Something follows the stream.
        """
        while not self._stream.eof:
            chunk = self._stream.unconsumed_tail or self._packed.read(_CHUNK_BYTES)
            if not chunk:
                raise EOFError("it is cut short")
            found = self._stream.decompress(chunk, len(buffer))
            if found:
                buffer[: len(found)] = found
                return len(found)
        if self._stream.unused_data or self._packed.read(1):
            raise Unreadable("something follows its end")
        return 0


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object. Refuses duplicate keys, because it would be unclear which one counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _null(_: str) -> None:
    """Returns null for NaN or Infinity."""


def _memory(outside: bytes) -> int:
    """Estimates the memory of a JSON text's values as Python objects, from the text outside of strings."""
    return _VALUE_BYTES + sum(count * outside.count(sign) for sign, count in _SIGN_BYTES.items())


def _size(count: int) -> str:
    return f"{count // _MIB} MiB" if count >= _MIB else f"{count} bytes"


def _deeper(outside: bytes, depth: int) -> bool:
    """Returns whether brackets are nested deeper than `depth`. Each pass removes the innermost ones."""
    brackets = outside.translate(None, _NOT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    # The rest is deep, or not JSON. In the second case the parser reports the error, if it can.
    return len(brackets) > 2 * depth


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_values(content: Any, depth: int) -> None:
    """Refuses deep nesting, and numbers that are infinite, NaN, or too large for a float64."""
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        where, value, level = waiting.pop()
        if level > depth:
            raise Unreadable(f"{where[:60]}: it is nested more than {depth} deep")
        if isinstance(value, dict):
            waiting += ((f"{where}.{key}", inner, level + 1) for key, inner in value.items())
        elif isinstance(value, list):
            waiting += ((f"{where}.{n}", inner, level + 1) for n, inner in enumerate(value))
        elif isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
            raise Unreadable(f"{where.removeprefix('.')[:60]}: the number is too large")
        elif isinstance(value, float) and not abs(value) < float("inf"):
            raise Unreadable(f"{where.removeprefix('.')[:60]}: {value} is not a finite number")
