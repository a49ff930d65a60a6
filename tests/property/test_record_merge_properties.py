"""Merging databases of records is a union: order and repetition do not matter, and files keep it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.records.database import (
    About,
    Database,
    Identity,
    Schedule,
    SearchedTask,
    Source,
    merged,
)
from autotune.records.database_file import read_database, write_database
from autotune.records.store import pulled

IDENTITIES = [
    Identity(device, "rpc-cpu", "", tvm, "cpu aarch64-linux-gnu", stand_in)
    for device, tvm, stand_in in (("sm8150", "0.27", False), ("sm8150", "0.28", False), ("emu", "0.27", True))
]  # fmt: skip
TASKS = ("matmul_a", "matmul_b")
seconds = st.floats(1e-6, 10, allow_nan=False)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    number = draw(st.integers(0, 3))
    improved = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
    times = draw(st.sets(seconds, min_size=len(improved), max_size=len(improved)))
    curve = tuple(zip(improved, sorted(times, reverse=True), strict=True))
    trials = draw(st.integers(9, 20))
    tasks = {
        name: SearchedTask("matmul:m=8,n=8,k=8", "forward", 1, draw(seconds), trials, curve)
        for name in TASKS
    }
    identity = IDENTITIES[number % len(IDENTITIES)]
    about = About("run", 0.0, "lenet", 4, knew=draw(st.none() | st.integers(0, 2)))
    return Source(f"source{number}", identity, "all", about, trials, tasks)


@st.composite
def databases(draw: st.DrawFn) -> Database:
    found = draw(st.lists(sources(), min_size=1, max_size=4))
    ids = [one.id for one in found]
    schedules = [
        Schedule.of(
            draw(st.sampled_from(TASKS)),
            draw(st.sampled_from(("direct", "packed"))),
            f"digest{draw(st.integers(0, 3))}",
            [[["GetSBlock", [], ["y", "main"], [f"b{draw(st.integers(0, 2))}"]]], []],
            draw(st.dictionaries(st.sampled_from(ids), seconds, min_size=1, max_size=3)),
        )
        for _ in range(draw(st.integers(0, 6)))
    ]
    return Database.of(found, schedules)


@given(databases())
def test_merging_with_itself_or_nothing_changes_nothing(a: Database) -> None:
    assert merged([a, a]) == merged([a]) == merged([a, Database()]) == a


@given(databases(), databases())
def test_the_order_of_two_does_not_matter(a: Database, b: Database) -> None:
    assert merged([a, b]) == merged([b, a])


@given(databases(), databases(), databases())
def test_the_order_of_merges_does_not_matter(a: Database, b: Database, c: Database) -> None:
    assert merged([merged([a, b]), c]) == merged([a, merged([b, c])]) == merged([c, b, a])


@given(databases(), databases())
def test_nothing_is_lost(a: Database, b: Database) -> None:
    both = merged([a, b])
    for part in (a, b):
        assert set(part.sources) <= set(both.sources)
        for key, one in part.schedules.items():
            assert set(one.seconds) <= set(both.schedules[key].seconds)
            assert both.schedules[key].best_s <= one.best_s


@settings(deadline=None, max_examples=30)
@given(databases(), databases())
def test_files_keep_it_and_equal_databases_are_equal_files(a: Database, b: Database) -> None:
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("ab.records.gz", "ba.records.gz")]
        write_database(paths[0], merged([a, b]))
        write_database(paths[1], merged([b, a]))
        assert read_database(paths[0]) == merged([a, b])
        assert paths[0].read_bytes() == paths[1].read_bytes()


@settings(deadline=None, max_examples=30)
@given(st.lists(databases(), min_size=1, max_size=3))
def test_a_store_has_one_database_an_identity_and_holds_it_all(parts: list[Database]) -> None:
    with TemporaryDirectory() as folder:
        store = Path(folder)
        for part in parts:
            pulled([part], store)
        files = {path: path.read_bytes() for path in store.glob("*.records.gz")}
        found = [read_database(path) for path in files]
        assert all(len(one.identities) == 1 for one in found)
        assert merged(found) == merged(parts)
        assert all(added == 0 for _, _, added in pulled(parts, store))
        assert files == {path: path.read_bytes() for path in store.glob("*.records.gz")}
