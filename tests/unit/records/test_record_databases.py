"""Databases of records: what is refused, how two differ, and files that are damaged."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import RecordError, UsageError
from autotune.records.database import (
    About,
    Database,
    Identity,
    Schedule,
    SearchedTask,
    Source,
    difference,
    merged,
    refuse_mixture,
)
from autotune.records.database_file import file_name, read_database, write_database
from autotune.records.store import pulled

PHONE = Identity("sm8150", "rpc-cpu", "", "0.27.0", "cpu aarch64-linux-gnu", stand_in=False)
SPEC = "matmul:m=8,n=8,k=8"


def source(identity: Identity = PHONE, name: str = "one", cores: str = "big, 4 threads") -> Source:
    task = SearchedTask(SPEC, "forward", 2, 0.5, 9, ((1, 0.4), (5, 0.2), (9, 0.1)))
    tasks = dict.fromkeys("abc", task)
    return Source(name, identity, cores, About(name, 0.0, "lenet", 4), 9, tasks)


def database(*schedules: tuple[str, str, float], **fields: object) -> Database:
    own = source(**fields)  # type: ignore[arg-type]
    return Database.of(
        [own],
        [
            Schedule.of(task, "direct", digest, [[], []], {own.id: s})
            for task, digest, s in schedules
        ],
    )


def with_(**fields: object) -> Identity:
    return Identity(**{**PHONE.__dict__, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (with_(device="sm8250"), "of several devices: 'sm8150', 'sm8250'"),
        (with_(driver="SoC model"), "of several drivers"),
        (with_(tvm="0.28.0"), "of TVM 0.27.0 and 0.28.0"),
        (with_(target="opencl"), "of several targets"),
        (with_(stand_in=True), "of a stand-in and of a real device"),
    ],
)
def test_a_mixture_is_refused(other: Identity, text: str) -> None:
    a, b = database(("a", "x", 1.0)), database(("a", "x", 0.1), identity=other, name="two")
    refuse_mixture([a, a])
    with pytest.raises(UsageError, match=text) as caught:
        refuse_mixture([a, b])
    assert "--mixed" in caught.value.hint
    # Who insists gets one in which each time still is its device's own.
    both = merged([a, b])
    assert both.of_device(PHONE, "big, 4 threads") == a
    assert file_name(both).startswith("mixed-")


def test_clusters_of_one_device_merge_and_stay_apart() -> None:
    big = database(("a", "x", 1.0), name="big")
    little = database(("a", "x", 3.0), name="little", cores="little, 4 threads")
    refuse_mixture([big, little])
    both = merged([big, little])
    ((_, one),) = both.schedules.items()
    assert one.seconds == {"big": 1.0, "little": 3.0}
    assert both.of_device(PHONE, "little, 4 threads") == little
    assert not both.of_device(PHONE, "all").sources


def test_the_fastest_are_those_of_each_device_kernel_and_formulation() -> None:
    big = database(("a", "x", 1.0), ("a", "y", 0.5), ("a", "z", 0.7), ("b", "x", 9.0), name="big")
    # Of the slower cores all would be left out, were they not counted apart.
    little = database(("a", "x", 3.0), ("a", "y", 4.0), name="little", cores="little, 4 threads")
    other = Schedule.of("a", "packed", "x", [[], []], {"big": 8.0})
    whole = merged([big, little, Database.of(big.sources.values(), [other])])
    kept = whole.fastest(1)
    assert set(kept.schedules) == {
        ("a", "direct", "x"), ("a", "direct", "y"), ("a", "packed", "x"), ("b", "direct", "x")
    }  # fmt: skip
    assert kept.schedules["a", "direct", "x"].seconds == {"big": 1.0, "little": 3.0}
    assert kept.sources == whole.sources
    assert whole.fastest(3) == whole


def test_a_run_that_went_on_takes_the_place_of_its_earlier_copy() -> None:
    early, late = database(("a", "x", 1.0)), database(("a", "x", 1.0), ("a", "y", 0.5))
    grown = Source(**{**late.sources["one"].__dict__, "trials": 20})
    late = Database.of([grown], late.schedules.values())
    both = merged([late, early])
    assert both == late
    assert both.trials == 20


def test_a_difference_tells_which_is_better_and_what_each_alone_has() -> None:
    a = database(("a", "x", 1.0), ("a", "y", 0.5), ("b", "x", 1.0))
    b = database(("a", "y", 0.5), ("a", "z", 0.2), ("c", "x", 1.0))
    rows = {row.task: row for row in difference(a, b)}
    assert (rows["a"].best_s, rows["a"].better, rows["a"].alone) == ((0.5, 0.2), "b", (1, 1))
    assert (rows["b"].best_s, rows["b"].better, rows["b"].alone) == ((1.0, None), None, (1, 0))
    assert (rows["c"].better, rows["c"].alone) == (None, (0, 1))
    assert {row.better for row in difference(a, a)} == {"equal"}


def test_how_long_a_search_took_is_read_from_its_curve() -> None:
    task = source().tasks["a"]
    assert [task.trials_until(s) for s in (0.5, 0.2, 0.15, 0.01)] == [1, 5, 9, 9]


def packed(content: bytes) -> bytes:
    """The same whenever it is made: tests are named by it, and must be for all who run a part of them."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"no gzip", "is damaged"),
        (packed(b'{"kind":"other"}\n'), "holds no records"),
        (packed(b""), "holds no records"),
        (packed(b'{"kind":"autotune records","schema_version":9}\n'), "schema version 9"),
        (packed(b'{"kind":"autotune records","schema_version":1}\n[]\n'), "is damaged"),
        (
            packed(b'{"kind":"autotune records","schema_version":1}\n{"schedule":{}}\n'),
            "is damaged",
        ),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "a.records.gz"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=text):
        read_database(path)


def test_a_time_without_its_run_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.records.gz"
    write_database(path, database(("a", "x", 1.0)))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(line for line in lines if b"source" not in line)))
    with pytest.raises(RecordError, match="is damaged"):
        read_database(path)
    path.write_bytes(gzip.compress(b"".join(lines))[:-20])
    with pytest.raises(RecordError, match="is damaged"):
        read_database(path)


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Writes a database and changes its values, by the kind of line: `head`, `source` and `schedule`."""
    write_database(path, database(("a", "x", 1.0)))
    head, *others = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    change({"head": head, **{kind: value for one in others for kind, value in one.items()}})
    path.write_bytes(packed(b"".join(json.dumps(one).encode() + b"\n" for one in (head, *others))))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines["schedule"].update(task="d"),
        lambda lines: lines["source"].update(tasks={}),
        lambda lines: lines["source"].update(about={}),
        lambda lines: lines["source"]["about"].pop("workload"),
        lambda lines: lines["source"]["about"].update(batch=[{}]),
        lambda lines: lines["source"]["about"].update(run=[{}]),
        lambda lines: lines["source"]["about"].update(step={"classes": "many"}),
        lambda lines: lines["source"]["about"].update(step={"optimizer": ["sgd"]}),
        lambda lines: lines["source"]["about"].update(began="yesterday"),
        lambda lines: lines["source"]["identity"].update(device="a" * 3_000_000),
        lambda lines: lines["source"].update(cores="a" * 3_000_000),
        lambda lines: lines["source"].update(trials=1 << 52),
        lambda lines: lines["source"]["tasks"]["a"].update(trials=10),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[1 << 52, 1e-3], [0, 9e8]]),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[0, 0.4]]),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[10, 0.4]]),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[1, 0.4], [1, 0.3]]),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[1, 0.4], [2, 0.4]]),
        lambda lines: lines["source"]["tasks"]["a"].update(curve=[[1, 1e-300]]),
        lambda lines: lines["schedule"]["seconds"].update(one=1e-300),
    ],
)
def test_a_source_that_says_what_none_of_ours_does_is_damage(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    path = changed(tmp_path / "a.records.gz", change)
    with pytest.raises(RecordError, match=r"is damaged: line [23]: .{1,200}$"):
        read_database(path)


@pytest.mark.parametrize("version", [True, 1.0, "1", None, [1], 2])
def test_only_the_number_of_a_version_is_one(tmp_path: Path, version: object) -> None:
    path = changed(
        tmp_path / "a.records.gz", lambda lines: lines["head"].update(schema_version=version)
    )
    with pytest.raises(RecordError, match="schema version"):
        read_database(path)


def test_records_of_earlier_versions_are_written_as_they_were_read(tmp_path: Path) -> None:
    def of_then(lines: dict[str, Any]) -> None:
        lines["source"]["about"] = {"batch": None, "began": 1.5, "git": "", "had_records": True}
        lines["source"]["about"] |= {"run": "a", "seed": 1, "versions": {}, "workload": "matmul"}

    path = changed(tmp_path / "a.records.gz", of_then)
    write_database(tmp_path / "b.records.gz", read_database(path))
    first, second = (
        [json.loads(line) for line in gzip.decompress(one.read_bytes()).splitlines()]
        for one in (path, tmp_path / "b.records.gz")
    )
    assert first == second


def test_two_copies_of_a_run_have_the_kernels_of_both() -> None:
    first, second = database(("a", "x", 1.0)), database(("a", "x", 1.0))
    other = replace(second.sources["one"], trials=20, tasks={"d": source().tasks["a"]})
    both = merged([first, Database.of([other], [])])
    assert set(both.sources["one"].tasks) == set("abcd")
    assert both.trials == 20


def test_a_store_that_cannot_be_written_keeps_what_it_has(tmp_path: Path) -> None:
    ((path, _, added),) = pulled([database(("a", "x", 1.0))], tmp_path)
    assert added == 1
    before = path.read_bytes()
    assert json.loads(gzip.decompress(before).splitlines()[0])["schema_version"] == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be a store"):
        pulled([database(("a", "y", 1.0))], tmp_path / "file")
    assert path.read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(f".{path.name}")]
