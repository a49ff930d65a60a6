"""Workers live for the whole run; one that hangs, crashes or exits is killed and replaced."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import misbehaving_worker
import pytest

from autotune.compiler.workers.workers import Job, Worker, WorkerLost, WorkerPool

HERE = os.pathsep.join(str(Path(file).parent) for file in (__file__, misbehaving_worker.__file__))


def make() -> Worker:
    return Worker("misbehaving_worker", environment={"PYTHONPATH": HERE})


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(make, 2, start_s=0.0)
    yield workers
    workers.stop()


def test_answers_come_in_the_order_of_the_jobs(pool: WorkerPool) -> None:
    waits = [0.3, 0.0, 0.1, 0.0, 0.05]
    jobs = [Job({"do": "sleep", "seconds": s, "echo": i}, 5.0) for i, s in enumerate(waits)]
    answers = pool.run(jobs)
    assert [answer["echo"] for answer in answers if not isinstance(answer, WorkerLost)] == [
        *range(5)
    ]


def test_workers_stay_alive_between_calls(pool: WorkerPool) -> None:
    seen = set()
    for _ in range(3):
        for answer in pool.run([Job({"do": "sleep", "seconds": 0.3}, 5.0)] * 4):
            assert not isinstance(answer, WorkerLost)
            seen.add(answer["pid"])
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("bad", "words", "timed_out"),
    [
        ("hang", "time limit", True),
        ("crash", "SIGSEGV: about to crash", False),
        ("exit", "code 3", False),
    ],
)
def test_a_lost_worker_costs_one_job_and_is_replaced(
    pool: WorkerPool, bad: str, words: str, timed_out: bool
) -> None:
    began = time.monotonic()
    jobs = [Job({"do": "echo"}, 5.0), Job({"do": bad}, 1.0), *[Job({"do": "echo"}, 5.0)] * 4]
    answers = pool.run(jobs)
    lost = answers.pop(1)
    assert isinstance(lost, WorkerLost)
    assert words in str(lost)
    assert lost.timed_out == timed_out
    assert not any(isinstance(answer, WorkerLost) for answer in answers)
    assert time.monotonic() - began < 20


def test_a_further_worker_is_started_where_more_waits_than_its_start_takes() -> None:
    pool = WorkerPool(make, 3, start_s=1.0)

    def workers(count: int, seconds: float) -> int:
        jobs = [Job({"do": "sleep", "seconds": seconds}, 20.0)] * count
        return len({str(answer["pid"]) for answer in pool.run(jobs) if isinstance(answer, dict)})

    try:
        pool.start()
        assert workers(1, 0.0) == 1
        assert [workers(4, 0.0) for _ in range(4)] == [1] * 4
        assert workers(16, 0.5) > 1
    finally:
        pool.stop()


def test_an_exception_is_an_answer_and_costs_no_worker(pool: WorkerPool) -> None:
    first, second = pool.run([Job({"do": "raise"}, 5.0), Job({"do": "echo"}, 5.0)])
    assert first == {"error": "ValueError: no such kernel"}
    assert not isinstance(second, WorkerLost)


def test_a_cancelled_pool_gives_up_what_it_was_doing(pool: WorkerPool) -> None:
    pool.run([Job({"do": "echo"}, 5.0)] * 2)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(pool.run, [Job({"do": "hang"}, 60.0)] * 4)
        time.sleep(0.3)
        began = time.monotonic()
        pool.cancel()
        with pytest.raises(CancelledError):
            running.result(timeout=10)
    assert time.monotonic() - began < 2


def test_a_worker_killed_from_outside_between_two_requests_is_replaced() -> None:
    worker = make()
    pid = worker.ask({"do": "echo"}, timeout=5.0)["pid"]
    os.kill(pid, 9)
    time.sleep(0.2)
    assert worker.ask({"do": "echo"}, timeout=5.0)["pid"] != pid
    worker.stop()


def test_stopping_kills_a_hung_worker_at_once() -> None:
    worker = make()
    worker.send({"do": "hang"}, timeout=60.0)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_job_whose_worker_is_killed_from_outside_is_done_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    said: list[str] = []
    pool = WorkerPool(make, 2, said.append, start_s=0.0)
    die = {"do": "die", "signal": int(number)}
    try:
        twice, always = pool.run(
            [
                Job({**die, "deaths": str(tmp_path / "two"), "times": 2, "echo": "there"}, 10.0),
                Job({**die, "deaths": str(tmp_path / "all"), "times": 99}, 10.0),
            ]
        )
    finally:
        pool.stop()
    assert not isinstance(twice, WorkerLost)
    assert twice["echo"] == "there"
    assert isinstance(always, WorkerLost)
    assert f"killed by {number.name} from outside, 3 times" in str(always)
    assert len(said) == 4
    assert all("tried again" in text for text in said)


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS]
)
def test_a_job_that_crashes_its_worker_is_not_done_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    deaths = tmp_path / "deaths"
    worker = make()
    try:
        with pytest.raises(WorkerLost, match=f"died by {number.name}") as lost:
            worker.ask_again(
                {"do": "die", "signal": int(number), "deaths": str(deaths), "times": 1}, timeout=10
            )
    finally:
        worker.stop()
    assert (lost.value.killed, deaths.read_text()) == ("", "x")


def memory_group() -> Path | None:
    """A control group of this process whose memory can be limited; None where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / path.strip("/")
        if not controllers:
            own = Path("/sys/fs/cgroup") / path.strip("/")
            if (
                "memory" in (own / "cgroup.subtree_control").read_text().split()
                if own.is_dir()
                else ()
            ):
                return own
    return None


POOL = """
import json, os, sys
from pathlib import Path
(Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
from test_workers import make
from autotune.compiler.workers import Job, WorkerLost, WorkerPool

said = []
pool = WorkerPool(make, 2, said.append, start_s=0.0)
wanted = json.loads(sys.argv[2])
answers = pool.run([Job({"do": "take", "mib": mib, "seconds": s, "echo": mib}, 30.0) for mib, s in wanted])
pool.stop()
print(json.dumps({
    "said": said,
    "answers": [str(a) if isinstance(a, WorkerLost) else a["echo"] for a in answers],
}))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or memory_group() is None, reason="limiting memory needs a control group"
)
def test_the_out_of_memory_killer_is_told_from_a_crash(tmp_path: Path) -> None:
    group = memory_group()
    assert group is not None
    own = group / f"autotune-test-{os.getpid()}"
    own.mkdir()
    limit = next(p for p in (own / "memory.max", own / "memory.limit_in_bytes") if p.exists())
    limit.write_text(str(260 << 20))

    def run(*jobs: tuple[int, float]) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", POOL, str(own), json.dumps(jobs)],
            env={**os.environ, "PYTHONPATH": HERE},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    try:
        # Each fits, and both do not: neither is at fault.
        both = run((110, 1.0), (110, 1.0))
        assert both["answers"] == [110, 110]
        assert any("out of memory" in text for text in both["said"])
        # One never fits.
        one = run((400, 0.0), (10, 0.0))
        assert one["answers"][1] == 10
        assert "out of memory" in one["answers"][0]
        assert "2 times with nothing else at work" in one["answers"][0]
    finally:
        own.rmdir()
