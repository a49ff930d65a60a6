"""Files from outside are read within limits: what is too large, too deep or no JSON is refused in one line."""

import gzip
import json
import math
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import RecordError, UsageError
from autotune.reading import (
    DOCUMENT,
    LINES,
    SMALL,
    Limits,
    Unreadable,
    open_file,
    packed_lines,
    parse_json,
    parse_toml,
    read_json,
    reading,
    typed,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**23), 10**23)
    | st.floats(-1e99, 1e99, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=30,
)  # fmt: skip


@given(JSON, st.booleans())
def test_what_json_says_is_read_as_it_was(value: Any, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.binary() | st.text().map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_are_a_value_or_one_line(data: bytes) -> None:
    try:
        parse_json(data)
    except Unreadable as error:
        assert len(str(error).splitlines()) == 1


@given(JSON, st.data())
def test_a_damaged_text_is_a_value_or_one_line(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    piece = data.draw(
        st.sampled_from(["[" * 200, "{", '"', "\\", "1e999", "NaN", "9" * 99, ",", "]", "\0"])
    )
    damaged = text[:at] + piece + text[at:]
    try:
        parse_json(damaged)
    except Unreadable as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 100_000, "nested more than 32 deep"),
        ("[" * 70 + "]" * 70, "nested more than 32 deep"),
        ("[{},"  * 3 + "NaN]", "which JSON does not allow"),
        ("-Infinity", "which JSON does not allow"),
        ("1e400", "too large"),
        ("[1E+0999]", "too large"),
        ("9" * 5000, "too large"),
        ("0." + "1" * 5000, "too large"),
        ('"\\ud800"', "surrogate"),
        ("", "Expecting value"),
        ('{"a":1', "delimiter"),
        (b"\xff\xfe", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_json_or_beyond_a_limit_is_refused(text: str | bytes, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        parse_json(text)


def test_brackets_and_numbers_within_texts_do_not_count() -> None:
    value = {'[{"' * 100 + "\\": "NaN 1e999 " + "9" * 99, "b": ["\\" * 7, '\\"[']}
    assert parse_json(json.dumps(value)) == value


def test_too_many_values_are_refused_before_they_are_made() -> None:
    with pytest.raises(Unreadable, match="more than 500 bytes of memory"):
        parse_json("[" + "1," * 10 + "1]", Limits(100, 100, memory=500))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested"),
        ("a = nan", "a: nan is not a finite number"),
        ("a = [1, {b = -inf}]", r"a\.1\.b: -inf is not a finite number"),
        ("a = " + "9" * 5000, "limit|too large"),
        ("a = " + "9" * 30, "too large"),
        ("." .join(["a"] * 60) + " = 1", "nested more than 32 deep"),
        (".".join(["a"] * 400_000) + " = 1", "nested more than 32 deep"),
        ("x = {" + " . ".join(['"a"'] * 60) + " = 1}", "nested more than 32 deep"),
        ("#" * (1 << 21), "larger than 1 MiB"),
        ("a", "."),
    ],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_toml_has_the_same_limits(text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        parse_toml(text)


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "special", [lambda _: Path("/dev/zero"), lambda folder: folder, lambda f: _fifo(f / "pipe")]
)
def test_only_regular_files_are_read(tmp_path: Path, special: Callable[[Path], Path]) -> None:
    path = special(tmp_path)
    with pytest.raises(UsageError, match=f"{path} (is not a regular file|cannot be read)"):
        read_json(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        open_file(tmp_path / "none", RecordError)
    with pytest.raises(UsageError, match="not a file name"):
        open_file(Path("a\0b"))


def test_a_large_file_is_refused_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(SMALL.bytes + 1)
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        read_json(path, SMALL)


BOMBS: dict[str, Callable[[], bytes]] = {
    "objects": lambda: b'{"a":1}\n' * (1 << 25),
    "one line": lambda: b"[" + b"0," * (1 << 27),
    "zeros": lambda: bytes(1 << 28),
    "strings": lambda: b'"' + b"a" * (1 << 28) + b'"\n',
    "empty lines": lambda: b"\n" * (1 << 28),
}

MEASURE = """
import resource, sys, time
from pathlib import Path
from autotune.errors import RecordError
from autotune.records.database_file import read_database
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
before = resource.getrusage(resource.RUSAGE_SELF)
try:
    read_database(Path(sys.argv[1]))
except RecordError as error:
    print(error.message)
after = resource.getrusage(resource.RUSAGE_SELF)
print((after.ru_maxrss - before.ru_maxrss) >> 10, after.ru_utime - before.ru_utime)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_gzip_bomb_costs_little_memory_and_time(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "a.records.gz"
    head = b'{"kind": "autotune records", "schema_version": 1}\n'
    path.write_bytes(gzip.compress(head + BOMBS[bomb](), compresslevel=6))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    message, figures = done.stdout.splitlines()
    mebibytes, seconds = map(float, figures.split())
    assert str(path) in message
    assert mebibytes < 150
    assert seconds < 5


HEAD = gzip.compress(b'{"kind": "autotune records", "schema_version": 1}\n')
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)


@pytest.mark.parametrize(
    ("packed", "more", "words"),
    [
        (HEAD, 1 << 40, "is larger than 64 MiB"),
        (HEAD, 1 << 20, "is damaged: something follows its end"),
        (HEAD + b"x", 0, "is damaged: something follows its end"),
        (HEAD + HEAD, 0, "is damaged: something follows its end"),
        (HEAD + gzip.compress(b"") * 1_000_000, 0, "is damaged: something follows its end"),
        (NAMED + b"a" * 100_000_000 + HEAD[10:], 0, "is larger than 64 MiB"),
        (NAMED + b"a" * 60_000_000, 0, "is damaged: it is cut short"),
        (HEAD[:-1], 0, "is damaged: it is cut short"),
        (HEAD[:-1] + b"x", 0, "is damaged: it cannot be unpacked"),
        (b'{"kind": "autotune records"}\n', 0, "is damaged: it is not a gzip file"),
        (b"", 0, "is damaged: it is not a gzip file"),
    ],
    ids=[
        "sparse",
        "zeros",
        "byte",
        "twice",
        "members",
        "name",
        "long name",
        "short",
        "length",
        "plain",
        "empty",
    ],
)
def test_what_is_packed_is_one_stream_of_limited_size(
    tmp_path: Path, packed: bytes, more: int, words: str
) -> None:
    path = tmp_path / "a.records.gz"
    path.write_bytes(packed)
    os.truncate(path, len(packed) + more)
    began = time.process_time()
    with pytest.raises(RecordError, match=words):
        list(packed_lines(path, LINES, RecordError))
    assert time.process_time() - began < 1


def test_a_packed_file_may_have_a_name_in_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.records.gz"
    path.write_bytes(NAMED + b"a.records\0" + HEAD[10:])
    (value,) = packed_lines(path, LINES, RecordError)
    assert value["schema_version"] == 1


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 1 << 20])
def test_any_length_is_unpacked_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b'"' + b"a" * size + b'"\n' + b"[0]\n"))
    assert list(packed_lines(path, LINES, RecordError)) == ["a" * size, [0]]


@pytest.mark.parametrize(
    "text",
    ["[" + '{"a":0},' * 5000 + "0]", "[" + "[]," * 9000 + "0]", "[" + "1234.5," * 9000 + "0]"],
)
def test_what_values_take_of_memory_is_known_before_they_are_made(text: str) -> None:
    tracemalloc.start()
    try:
        value = parse_json(text, replace(LINES, memory=1 << 30))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    with pytest.raises(Unreadable, match="of memory"):
        parse_json(text, replace(LINES, memory=taken // 2))
    assert parse_json(text, replace(LINES, memory=2 * taken)) == value


def test_lines_of_a_file_are_limited_together(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"[1,2,3]\n" * 1000))
    few = Limits(1 << 20, 1 << 10, lines=100)
    with pytest.raises(RecordError, match="more than 100 lines"):
        list(packed_lines(path, few, RecordError))
    few = Limits(1 << 20, 1 << 10, all_memory=4000)
    with pytest.raises(RecordError, match="more than 4000 bytes of memory"):
        list(packed_lines(path, few, RecordError))
    few = Limits(1 << 10, 1 << 10)
    with pytest.raises(RecordError, match="larger than 1024 bytes"):
        next(packed_lines(path, few, RecordError))  # Before a line of it is parsed.
    assert len(list(packed_lines(path, LINES, RecordError))) == 1000


def test_a_packed_file_that_is_cut_short_or_none_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    for content in (gzip.compress(b"[1]\n" * 1000)[:-9], b"no gzip", b"\x1f\x8b" + bytes(30)):
        path.write_bytes(content)
        with pytest.raises(RecordError, match="is damaged"):
            list(packed_lines(path, LINES, RecordError))


@pytest.mark.parametrize(
    "wrong", [KeyError("a"), TypeError("b\nc"), OverflowError("d"), RecursionError()]
)
def test_whatever_goes_wrong_with_data_of_a_file_is_one_line(wrong: Exception) -> None:
    with pytest.raises(RecordError) as raised, reading("file.json"):
        raise wrong
    assert raised.value.message.startswith("file.json is damaged: ")
    assert "\n" not in raised.value.message


def test_types_are_checked_by_name() -> None:
    with pytest.raises(Unreadable, match=r"1: Input should be a valid integer"):
        typed(list[int], [1, "x"])
    assert math.isclose(typed(float, 2), 2.0)
    assert parse_json("[NaN]", DOCUMENT, nan_as_null=True) == [None]


def test_an_error_says_nothing_to_the_terminal_itself() -> None:
    error = RecordError("a\x1b[2Jb\x07\x9b\u202e", hint="c\x00")
    assert str(error) == "a\\x1b[2Jb\\x07\\x9b\\u202e (c\\x00)"
