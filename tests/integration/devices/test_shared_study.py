"""Processes with a phone each, behind the real adb, share a study in a PostgreSQL database; one is killed."""

from __future__ import annotations

import gc
import getpass
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import optuna
import pytest
from command import AUTOTUNE, autotune
from optuna.samplers import RandomSampler
from small_phone import needs_phone, private_adb
from test_cpu_config_phone import limits
from test_phone_end_to_end import phone

from autotune.devices.ports import free_port
from autotune.studies.run.storage import open_storage, open_study

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
needs_postgresql = pytest.mark.skipif(
    not PROGRAMS or find_spec("psycopg") is None or shutil.which("setpriv") is None,
    reason="postgresql or psycopg is not installed",
)
TRIALS = 10
PASSWORD = "s3cret"


def owner() -> list[str]:
    """What a command of PostgreSQL's begins with: it refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture
def database() -> Iterator[str]:
    """A server of the test's own on a free port; its URL."""
    port = free_port()
    # The account of the server must be able to reach it, which a private TMPDIR would not allow.
    with tempfile.TemporaryDirectory(prefix="autotune-pg-", dir="/tmp") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        run = [*owner()]
        user = getpass.getuser() if os.geteuid() else "postgres"
        initdb = [str(PROGRAMS[-1] / "initdb"), "-D", str(data), "-A", "trust", "-U", user, "-N"]
        subprocess.run([*run, *initdb], check=True, capture_output=True, cwd="/")
        server = subprocess.Popen(
            [
                *run, str(PROGRAMS[-1] / "postgres"), "-D", str(data), "-p", str(port),
                "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        try:
            url = f"postgresql+psycopg://{user}@127.0.0.1:{port}/postgres"
            deadline = time.monotonic() + 30
            while True:
                try:
                    with stored(url):
                        pass
                except Exception:
                    assert time.monotonic() < deadline
                    time.sleep(0.3)
                else:
                    break
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


@contextmanager
def stored(url: str) -> Iterator[optuna.storages.RDBStorage]:
    storage = optuna.storages.RDBStorage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def empty_databases(url: str, count: int) -> list[str]:
    """URLs of so many empty databases of a server."""
    psycopg = pytest.importorskip("psycopg")
    names = [f"empty{n}" for n in range(count)]
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as server:
        for name in names:
            server.execute(f"CREATE DATABASE {name}")
    return [f"{url.rpartition('/')[0]}/{name}" for name in names]


def with_password(url: str) -> str:
    """A new role of a server's, which has to give its password; the URL that does."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as server:
        server.execute(f"CREATE ROLE guest SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        rules = Path(server.execute("SHOW hba_file").fetchone()[0])
        rules.write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        server.execute("SELECT pg_reload_conf()")
    time.sleep(1)  # The server reads its rules again.
    return f"postgresql+psycopg://guest:{PASSWORD}@{url.rpartition('@')[2]}"


def trials_of(url: str) -> list[optuna.trial.FrozenTrial]:
    """Trials of the shared study; none before there is one."""
    with stored(url) as storage:
        try:
            return optuna.load_study(study_name="shared", storage=storage).trials
        except KeyError:
            return []


def search(url: str, serial: str, logs: Path, seed: int, **home: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *AUTOTUNE, "cpu-config", "--device", serial, "--objective", "latency", "--meter", "none",
            "--command", "emulated_train --threads {threads} --scale 0.01", "--steps-from", "^step",
            "--least-seconds", "0.5", "--start-temperature", "80", "--reference-every", "0",
            "--trials", str(TRIALS), "--blocks", "0", "--storage", url, "--study", "shared",
            "--seed", str(seed), "--logs", str(logs), "--json",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **home},
    )  # fmt: skip


@needs_postgresql
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_empty_database_is_begun_by_several_at_once(database: str) -> None:
    gate = threading.Barrier(3)

    def begin(url: str) -> None:
        gate.wait()
        storage = open_storage(url)
        assert isinstance(storage, optuna.storages.RDBStorage)
        open_study(storage, "s", ["minimize"], RandomSampler())
        storage.remove_session()
        storage.engine.dispose()

    with ThreadPoolExecutor(3) as pool:
        for url in empty_databases(database, 4):
            list(pool.map(begin, [url] * 3))
    gc.collect()  # Connections of those that were late are nobody's.


@needs_phone
@needs_postgresql
def test_two_phones_share_a_study_and_nothing_is_lost_or_doubled(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    home = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with (
        private_adb(tmp_path / "home"),
        phone("meizu-16t") as (one, _),
        phone("meizu-16t") as (two, _),
    ):
        before = limits(one)
        first = search(database, one, tmp_path / "one", 1, **home)
        second = search(database, two, tmp_path / "two", 2, **home)
        deadline = time.monotonic() + 240
        while sum(t.state.is_finished() for t in trials_of(database)) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.3)
        # One dies in the middle of a measurement; another one takes its phone, and gives its trial back.
        first.send_signal(signal.SIGKILL)
        first.communicate()
        third = search(database, one, tmp_path / "three", 3, **home)
        results = []
        for process in (second, third):
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, err
            results.append(json.loads(out))
        assert limits(one) == limits(two) == before
    assert [r["n_measured"] for r in results] == [TRIALS, TRIALS]
    assert all(r["emulated"] for r in results)
    for folder, result in zip(["two", "three"], results, strict=True):
        (run,) = (tmp_path / folder).iterdir()
        own = (run / "events.jsonl").read_text().count('"event":"trial"')
        assert len(result["others"]) == TRIALS - own
    trials = trials_of(database)
    measured = [t for t in trials if "status" in t.user_attrs]
    numbers = Counter(t.user_attrs["configuration"] for t in measured)
    assert len(measured) == TRIALS
    assert set(numbers.values()) == {1}
    assert len({t.user_attrs["worker"] for t in measured}) >= 2
    # One that the killed process had only just begun has no configuration yet, and nobody waits for it.
    running = [t for t in trials if t.state == optuna.trial.TrialState.RUNNING]
    assert not [t for t in running if "configuration" in t.user_attrs]


@needs_postgresql
def test_a_password_is_kept_out_of_the_run_and_a_resume_finds_it(
    database: str, tmp_path: Path
) -> None:
    def resumed(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return autotune("cpu-config", "--resume", run, "--trials", "3", *arguments, **environment)

    url = with_password(database)
    done = autotune(
        "cpu-config", "--emulate", "meizu-16t", "--trials", "2", "--blocks", "0", "--storage", url,
        "--logs", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.iterdir()
    assert autotune("report", run).returncode == 0
    for path in run.rglob("*"):
        assert path.is_dir() or PASSWORD not in path.read_text(encoding="utf-8", errors="replace")
    none = resumed(PGPASSWORD="", PGPASSFILE="/dev/null")
    assert (none.returncode, PASSWORD in none.stderr) == (2, False)
    assert "give --storage with it and --resume, or set PGPASSWORD" in none.stderr
    another = resumed("--storage", url.replace("/postgres", "/another"))
    assert (another.returncode, "the run's study is in" in another.stderr) == (2, True)
    assert PASSWORD not in another.stderr
    assert resumed(PGPASSWORD=PASSWORD).returncode == 0
    assert resumed("--storage", url).returncode == 0
