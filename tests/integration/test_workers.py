"""Workers live for the whole run; one that hangs, crashes or exits is killed and replaced."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from autotune.compiler.workers import Job, Worker, WorkerLost, WorkerPool

HERE = str(Path(__file__).parent)


def make() -> Worker:
    return Worker("misbehaving_worker", environment={"PYTHONPATH": HERE})


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(make, 2)
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
        for answer in pool.run([Job({"do": "echo"}, 5.0)] * 4):
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
