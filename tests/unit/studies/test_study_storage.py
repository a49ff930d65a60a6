"""The storage of a study: what is not one, what is damaged, and its identity."""

import json
import os
import resource
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from small_studies import TABLE, every, request, small_space

from autotune.errors import AutotuneError, RecordError, ToolchainError, UsageError
from autotune.studies.replay.replay import TableEvaluator, read_paper_table
from autotune.studies.run.storage import (
    explained_faults,
    hidden,
    open_storage,
    open_study,
    without_password,
)
from autotune.studies.run.study import study_of
from autotune.studies.space.objective import Figures


def test_a_study_of_another_space_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study_of(request(read_paper_table(TABLE).space(), 3), open_storage(url), "s")
    with pytest.raises(UsageError, match="another device or space"):
        study_of(request(small_space(), 3), open_storage(url), "s")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 50_000 + b"\n", "line 1 is damaged: it is nested more than 32 deep"),
        (b"[]\n", "line 1 is not one of a journal"),
        (b"7\n", "line 1 is not one of a journal"),
        # Optuna copies all attributes of a trial for each new one.
        (
            b"".join(
                b'{"op_code":8,"worker_id":"a","trial_id":0,"user_attr":{"%d":1}}\n' % number
                for number in range(400)
            ),
            "line 301: a trial or study has more than 300 attributes",
        ),
        (b"{\n", "line 1 is damaged"),
        (b"a" * 9_000_000, "line 1 is longer than 8 MiB"),
        (b'{"op_code":4}\n' * 100_001, "it has more than 100000 lines"),
        (b"{}\n", "is not a journal of a study"),
        (b'{"op_code": 0, "worker_id": "a", "study_name": []}\n', "is not a journal of a study"),
    ],
)
def test_what_is_no_journal_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "study.log"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as raised:
        open_storage(f"journal:{path}")
    assert raised.value.message.isprintable()


@pytest.mark.parametrize(
    "content", ["my thesis, on one line", '{"mine": "settings"}', '{"a": 1}\n{"b": 2}']
)
def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path: Path, content: str) -> None:
    """A last line without its end was once taken for one that a kill cut off, and removed."""
    path = tmp_path / "mine.txt"
    path.write_text(content)
    with pytest.raises(UsageError, match="is not a journal of a study"):
        open_study(open_storage(f"journal:{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "{", '{"op_code":0,"worker_id":"x", "stu'])
def test_a_journal_whose_first_line_was_cut_off_is_used(tmp_path: Path, content: str) -> None:
    path = tmp_path / "study.log"
    path.write_text(content)
    open_study(open_storage(f"journal:{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    assert optuna.get_all_study_names(open_storage(f"journal:{path}")) == ["s"]


@pytest.mark.parametrize("scheme", ["journal:", "sqlite:///"])
def test_devices_and_pipes_are_no_storages(tmp_path: Path, scheme: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(UsageError, match="is not a regular file"):
            open_storage(f"{scheme}{path}")


@pytest.mark.parametrize("content", [b"x", b"SQLite format 3", b"no database at all " * 100])
def test_what_is_no_database_is_one_line_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "study.db"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"study\.db is not an SQLite database"):
        open_storage(f"sqlite:///{path}")
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW studies AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "CREATE TABLE a(b); CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a; END",
        "CREATE VIRTUAL TABLE a USING fts5(b)",
        "CREATE TABLE a(b, c GENERATED ALWAYS AS (hex(zeroblob(b))))",
        "CREATE TABLE a(b DEFAULT (hex(zeroblob(1000000000))))",
        "CREATE TABLE a(b, CHECK (length(hex(zeroblob(1000000000))) > b))",
        "CREATE TABLE a(b); CREATE INDEX c ON a (hex(zeroblob(b)))",
        'CREATE TABLE a(b, CHECK ("hex" (b) > 1))',
    ],
)
def test_a_database_with_more_than_tables_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(statement)
    with pytest.raises(UsageError, match="has more than a study's tables"):
        open_storage(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO trials(number, study_id, state) SELECT i, 1, 'FAIL' FROM n", "20000 rows in trials"),
        ("INSERT INTO trial_heartbeats(trial_id, heartbeat) SELECT i, '' FROM n", "200000 rows in trial_heart"),
    ],
)  # fmt: skip
def test_a_database_of_many_rows_is_refused_at_once(
    tmp_path: Path, statement: str, words: str
) -> None:
    path = tmp_path / "study.db"
    open_storage(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as database:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000) "
        database.execute(numbers + statement)
        database.commit()
    with pytest.raises(UsageError, match=words):
        open_storage(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("value", "count", "words"),
    [
        (json.dumps("x" * 1_100_000), 1, "too big"),
        (json.dumps("x" * 900_000), 80, "take more than 64 MiB"),
        ("[" + "{}," * 340_000 + "{}]", 1, "take more than 64 MiB of memory"),
        ("[" + "{}," * 150_000 + "{}]", 16, "memory"),
        ("[" * 5000, 1, "nested"),
        ("NOT JSON", 1, "a value of trial_user_attributes is refused"),
    ],
)
def test_a_database_of_large_values_is_refused(
    tmp_path: Path, value: str, count: int, words: str
) -> None:
    """Rows can share pages of a file, so that its values are many times as large as the file."""
    path = tmp_path / "study.db"
    open_storage(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as database:
        for number in range(count):
            database.execute(
                "INSERT INTO trial_user_attributes(trial_id, key, value_json) VALUES (1, ?, ?)",
                (str(number), value),
            )
        database.commit()
    with pytest.raises(UsageError, match=words) as raised:
        open_storage(f"sqlite:///{path}")
    assert raised.value.message.isprintable()


def varint(number: int) -> bytes:
    """A number as SQLite stores it."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def page(size: int, kind: int, cells: list[bytes], rest: bytes = b"", before: bytes = b"") -> bytes:
    """A page of a B-tree (https://www.sqlite.org/fileformat2.html): its cells, and what ends its head."""
    content, pointers = bytearray(size), []
    content[: len(before)] = before
    start = size
    for cell in cells:
        start -= len(cell)
        content[start : start + len(cell)] = cell
        pointers.append(struct.pack(">H", start))
    head = struct.pack(">BHHHB", kind, 0, len(cells), start % 65536, 0) + rest + b"".join(pointers)
    content[len(before) : len(before) + len(head)] = head
    return bytes(content)


def with_endless_parts(path: Path, levels: int) -> None:
    """Makes a database whose table of tables refers to the same page again and again, 300 times a level."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t(a TEXT UNIQUE)")
    head = bytearray(path.read_bytes()[:100])
    size = int.from_bytes(head[16:18], "big")

    def record(kind: str, name: str, root: int, text: str | None, number: int) -> bytes:
        texts = [part.encode() for part in (kind, name, "t")]
        types = b"".join(varint(13 + 2 * len(part)) for part in texts) + varint(4)
        types += varint(0) if text is None else varint(13 + 2 * len(text))
        body = b"".join(texts) + struct.pack(">I", root) + (text or "").encode()
        content = varint(len(types) + 1) + types + body
        return varint(len(content)) + varint(number) + content

    def inner(child: int, last: int, before: bytes = b"") -> bytes:
        cells = [struct.pack(">I", child) + varint(n + 1) for n in range(300 if not before else 1)]
        return page(size, 5, cells, struct.pack(">I", last), before)

    index = "sqlite_autoindex_t_1"
    pages = [
        b"", page(size, 13, []), page(size, 10, []),
        page(size, 13, [record("table", "t", 2, "CREATE TABLE t(a TEXT UNIQUE)", 1)]),
        page(size, 13, [record("index", index, 3, None, n + 2) for n in range(60)]),
    ]  # fmt: skip
    for _ in range(levels):
        pages.append(inner(len(pages), len(pages)))
    struct.pack_into(">I", head, 28, len(pages))
    struct.pack_into(">II", head, 32, 0, 0)
    pages[0] = inner(4, len(pages), bytes(head))
    path.write_bytes(b"".join(pages))


@pytest.mark.parametrize("levels", [1, 2, 6])
@pytest.mark.timeout(60)
def test_a_schema_without_end_is_refused(tmp_path: Path, levels: int) -> None:
    path = tmp_path / "study.db"
    with_endless_parts(path, levels)
    assert path.stat().st_size < 100_000
    with pytest.raises(UsageError, match=r"more than a study's tables|reading it takes too long"):
        open_storage(f"sqlite:///{path}")


def test_a_table_whose_pages_are_shared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    open_study(open_storage(f"sqlite:///{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    with closing(sqlite3.connect(path)) as database:
        roots = dict(database.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET rootpage = ? WHERE name = 'trial_user_attributes'",
            (roots["trial_system_attributes"],),
        )
        database.commit()
    with pytest.raises(UsageError, match=r"study\.db is damaged: .*2nd reference to page"):
        open_storage(f"sqlite:///{path}")


WORKER = {"worker_id": "a"}
STUDY = {"op_code": 0, **WORKER, "study_name": "s", "directions": [1]}
TRIAL = {"op_code": 4, **WORKER, "study_id": 0, "datetime_start": "2026-01-01T00:00:00.000000"}
AMONG = json.dumps(
    {"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0, "log": False, "step": None}}
)  # fmt: skip
SLOW: dict[str, tuple[Callable[[], list[dict[str, Any]]], str]] = {
    "steps": (
        lambda: [TRIAL, *({"op_code": 7, **WORKER, "trial_id": 0, "step": n, "intermediate_value": 1.0}
                          for n in range(99_000))],
        "more than 300 attributes"),
    "a trial with many attributes": (
        lambda: [TRIAL | {"user_attrs": {f"k{n}": 1 for n in range(300_000)}}], "more than 300 user_attrs"),
    "attributes of a study": (
        lambda: [{"op_code": 2, **WORKER, "study_id": 0, "user_attr": {f"k{n}": 1}} for n in range(99_000)],
        "more than 300 attributes"),
    "studies": (lambda: [STUDY | {"study_name": f"s{n}"} for n in range(99_000)], "more than 200 studies"),
    "parameters after many trials": (
        lambda: [TRIAL] * 50_000 + [
            {"op_code": 5, **WORKER, "trial_id": 49_999, "param_name": "x", "param_value_internal": 0.5,
             "distribution": AMONG}] * 49_000,
        "too many parameters for 50000 trials"),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.timeout(60)
def test_a_journal_that_optuna_reads_for_minutes_is_refused(tmp_path: Path, name: str) -> None:
    """Optuna's time grows with the square of each of these numbers."""
    made, words = SLOW[name]
    path = tmp_path / "study.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in [STUDY, *made()]), "utf-8")
    with pytest.raises(UsageError, match=words) as raised:
        open_storage(f"journal:{path}")
    assert raised.value.message.isprintable()


@pytest.mark.parametrize("linked", [False, True])
def test_a_journal_that_names_another_file_deletes_nothing(tmp_path: Path, *, linked: bool) -> None:
    """SQLite deletes the super-journal that a rollback journal names."""
    path, victim = tmp_path / "study.db", tmp_path / "thesis.txt"
    victim.write_text("years of work")
    open_storage(f"sqlite:///{path}")
    content, size = path.read_bytes(), int.from_bytes(path.read_bytes()[16:18], "big")
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 1, 7, len(content) // size, 512, size)
    page = content[:size]
    check = 7 + sum(page[at] for at in range(size - 200, 0, -200))
    name = str(victim).encode()
    journal = path.with_name("study.db-journal")
    journal.write_bytes(
        head.ljust(512, b"\0")
        + struct.pack(">I", 1) + page + struct.pack(">I", check)
        + struct.pack(">I", 0x40000000 // size + 1) + name + struct.pack(">II", len(name), sum(name))
        + magic
    )  # fmt: skip
    named = path
    if linked:  # SQLite looks for the journal beside the file itself.
        (tmp_path / "elsewhere").mkdir()
        named = tmp_path / "elsewhere" / "link.db"
        named.symlink_to(path)
    with pytest.raises(UsageError, match="names another file, which SQLite would delete"):
        open_storage(f"sqlite:///{named}")
    assert victim.exists()
    journal.unlink()
    journal.symlink_to(victim)
    with pytest.raises(UsageError, match="is a link"):
        open_storage(f"sqlite:///{path}")
    assert victim.read_text() == "years of work"


def test_a_write_that_was_cut_off_is_undone(tmp_path: Path) -> None:
    """A killed process leaves a rollback journal; the next one opens the database as it was before."""
    path = tmp_path / "study.db"
    open_study(open_storage(f"sqlite:///{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    code = (
        "import os, sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "d.execute('PRAGMA cache_size = 1'); d.execute('BEGIN');"
        "d.execute('DELETE FROM studies'); "
        "[d.execute('INSERT INTO trials(state) VALUES (?)', ('x' * 3000,)) for _ in range(50)];"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.with_name("study.db-journal").exists()
    assert optuna.get_all_study_names(open_storage(f"sqlite:///{path}")) == ["s"]


def test_a_large_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    open_storage(f"sqlite:///{path}")
    os.truncate(path, 1 << 40)
    with pytest.raises(UsageError, match="is larger than 256 MiB"):
        open_storage(f"sqlite:///{path}")


FIRST = small_space().number(every(small_space())[0])
GOOD = {"configuration": FIRST, "figures": {"time_s": 1.0, "energy_j": 2.0}, "status": "ok"}
DAMAGED: dict[str, dict[str, Any]] = {
    "number of another type": {"user_attrs": GOOD | {"configuration": "0"}},
    "number of no cores": {"user_attrs": GOOD | {"configuration": 0}},
    "number that is negative": {"user_attrs": GOOD | {"configuration": -1}},
    "number that is large": {"user_attrs": GOOD | {"configuration": 10**15}},
    "number that is true": {"user_attrs": GOOD | {"configuration": True}},
    "no number": {"user_attrs": {"status": "ok"}},
    "no figures": {"user_attrs": {"configuration": FIRST, "status": "ok"}},
    "figures of another type": {"user_attrs": GOOD | {"figures": [1.0]}},
    "figures that are unknown": {"user_attrs": GOOD | {"figures": {"time_s": 1.0, "x": 1}}},
    "figures as texts": {"user_attrs": GOOD | {"figures": {"time_s": "1.0"}}},
    "time that is not a number": {"user_attrs": GOOD | {"figures": {"time_s": float("nan")}}},
    "time of zero": {"user_attrs": GOOD | {"figures": {"time_s": 0.0}}},
    "belief": {"user_attrs": GOOD | {"belief": 7}},
    "default": {"user_attrs": GOOD | {"default": {"time_s": None}}},
    "message": {"user_attrs": GOOD | {"message": ["x"]}},
    "long message": {"user_attrs": GOOD | {"message": "x" * 1_000_000}},
    "worker": {"user_attrs": GOOD | {"worker": 1}},
    "beat": {"user_attrs": GOOD | {"beat": {}}},
    "marks": {"user_attrs": GOOD | {"marks": "ab"}},
    "clocks": {"user_attrs": GOOD | {"seen_khz": {"big": "1"}}},
    "schedules": {"user_attrs": GOOD | {"memo": {"chosen": [-1]}}},
    "memo": {"user_attrs": GOOD | {"memo": [1]}},
    "generation": {"system_attrs": {"Evolution:generation": 10**6}},
    "generation of another type": {"system_attrs": {"Evolution:generation": "1"}},
    "constraint": {"system_attrs": {"constraints:time": "1"}},
    "queued parameters": {"system_attrs": {"fixed_params": {"big cores": [1]}}},
    "queued list": {"system_attrs": {"fixed_params": [1]}},
    "values": {"values": [1.0, float("inf")]},
    "parameter among texts": {
        "params": {"big cores": "x"},
        "distributions": {"big cores": optuna.distributions.CategoricalDistribution(["x"])},
    },
}


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_trial_of_a_storage_is_one_line(tmp_path: Path, kind: str, damage: str) -> None:
    url = f"{kind}:{'' if kind == 'journal' else '///'}{tmp_path / 'study'}"
    asked = request(small_space(), 3)
    study_of(asked, open_storage(url), "s")
    good: dict[str, Any] = {"values": [1.0, 2.0], "user_attrs": GOOD}
    made = optuna.load_study(study_name="s", storage=open_storage(url))
    made.add_trial(optuna.create_trial(**good))
    study_of(asked, open_storage(url), "s")
    made.add_trial(optuna.create_trial(**(good | DAMAGED[damage])))
    with pytest.raises(UsageError, match=r"the study 's' is damaged: trial 1: ") as raised:
        study_of(asked, open_storage(url), "s")
    assert raised.value.message.isprintable()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trial_user_attributes SET value_json = '{'",
        "UPDATE trial_user_attributes SET value_json = ''",
        "UPDATE trials SET state = 'LOST'",
        "UPDATE study_directions SET direction = 'SIDEWAYS'",
        "UPDATE study_user_attributes SET value_json = '['",
        'UPDATE trial_params SET distribution_json = \'{"name": "os.system", "attributes": {}}\'',
        "UPDATE trial_params SET param_value = 'x'",
        "UPDATE trial_values SET value = 'x'",
        "UPDATE trial_values SET value_type = 'x'",
        "DELETE FROM trial_values",
        "UPDATE trials SET number = -7",
        "UPDATE trials SET number = NULL",
        "UPDATE trials SET datetime_start = 'yesterday'",
        "INSERT INTO alembic_version VALUES ('v2.6.0.a')",
        "UPDATE trial_params SET distribution_json = '" + "[" * 100_000 + "'",
        "UPDATE trial_params SET distribution_json = '" + "9" * 5000 + "'",
        "UPDATE trial_user_attributes SET value_json = '"
        + "[" * 100_000
        + "' WHERE key = 'figures'",
        "UPDATE trial_user_attributes SET value_json = x'80049500' WHERE key = 'figures'",
        "UPDATE study_directions SET direction = 'MAXIMIZE'",
    ],
)
def test_a_damaged_database_is_one_line(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "study.db"
    space = small_space()
    asked = request(space, 2)
    bench = TableEvaluator(space.clusters, {c: Figures(1.0, 1.0) for c in every(space)}, {})
    study_of(asked, open_storage(f"sqlite:///{path}"), "s").run(bench)
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    with pytest.raises(AutotuneError) as raised, explained_faults("x"):
        study_of(replace(asked, trials=4), open_storage(f"sqlite:///{path}"), "s").run(bench)
    assert raised.value.message.isprintable()
    assert "set_int_max_str_digits" not in raised.value.message


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line_that_names_it_and_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    study = open_study(open_storage(f"journal:{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    trial = optuna.trial.create_trial(value=1.0, params={}, user_attrs={"long": "a" * 100_000})
    with (
        pytest.raises(RecordError, match=rf"{path}: File too large") as raised,
        explained_faults("free some space"),
        full_at(path.stat().st_size + 90_000),
    ):
        study.add_trial(trial)
    assert raised.value.exit_code == 1
    assert not path.read_bytes().endswith(b"\n")
    study.add_trial(trial)
    again = open_study(open_storage(f"journal:{path}"), "s", ["a"], optuna.samplers.RandomSampler())
    assert len(again.trials) == 1


@pytest.mark.parametrize("size", [0, 4096])
def test_a_database_on_a_full_disk_is_a_fault_of_the_disk(tmp_path: Path, size: int) -> None:
    with (
        full_at(size),
        pytest.raises(RecordError, match=r"study\.db cannot be written: its disk is"),
    ):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")


def test_a_journal_and_a_database_are_opened_again(tmp_path: Path) -> None:
    for url in (f"journal:{tmp_path / 'study.log'}", f"sqlite:///{tmp_path / 'study.db'}"):
        for number in range(2):
            study = open_study(open_storage(url), "s", ["a"], optuna.samplers.RandomSampler())
            assert len(study.trials) == number
            study.add_trial(optuna.trial.create_trial(value=float("inf"), params={}))


def test_a_storage_that_is_none_is_told_without_its_password() -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        open_storage("nonsense")
    with pytest.raises(Exception) as raised:
        open_storage("postgresql+nodriver://me:secret@host/name")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown", "bare"),
    [
        ("journal:/tmp/a:b@c", "journal:/tmp/a:b@c", "journal:/tmp/a:b@c"),
        ("sqlite:////tmp/a:b@c", "sqlite:////tmp/a:b@c", "sqlite:////tmp/a:b@c"),
        ("postgresql://me@h/d", "postgresql://me@h/d", "postgresql://me@h/d"),
        ("postgresql://me:s%40t@h:1/d", "postgresql://me:***@h:1/d", "postgresql://me@h:1/d"),
        ("postgresql://me:s@t@h/d", "postgresql://me:***@h/d", "postgresql://me@h/d"),
        ("postgresql://me:s?t@h/d", "postgresql://me:***@h/d", "postgresql://me@h/d"),
        ("postgresql://me:s@h/d?o=a@b", "postgresql://me:***@h/d?o=a@b", "postgresql://me@h/d?o=a@b"),
        ("postgresql://h/d?user=me&password=s", "postgresql://h/d?user=me&password=***",
         "postgresql://h/d?user=me"),
        ("postgresql://h/d?password=s&user=me", "postgresql://h/d?password=***&user=me",
         "postgresql://h/d?user=me"),
    ],
)  # fmt: skip
def test_a_password_is_kept_out_of_what_is_written(url: str, shown: str, bare: str) -> None:
    assert hidden(url) == shown
    assert without_password(url) == without_password(shown) == bare


def test_a_driver_that_is_not_installed_is_told_with_how_to_get_one() -> None:
    with pytest.raises(ToolchainError, match=r"mysql://me:\*\*\*@h/d needs MySQLdb") as raised:
        open_storage("mysql://me:secret@h/d")
    assert (
        raised.value.hint == f"{sys.executable} -m pip install pymysql, and write mysql+pymysql://"
    )
