"""Whose fault a lost session was, without devices: what the tracker tells decides, for each candidate alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import DeviceFingerprint, MeasureRequest
from autotune.compiler.runners.sessions import SessionWaits
from autotune.compiler.workers.workers import Message, WorkerLost
from autotune.measurement import Outcome
from autotune.tracker.link import Crash, Served

DEVICE = DeviceFingerprint("k", "rpc-cpu", "", (), stand_in=False)
WAITS = SessionWaits(patience_s=5, open_s=1, verdict_s=0.3, retry_s=0.01)
OK = {"samples": [0.001], "max_rel_error": 0.0}
Behaviour = Callable[["Fake", str, int], Message]


class Fake:
    """A tracker with two devices, whose sessions do what the test says."""

    host, port = "127.0.0.1", 1

    def __init__(self, behaviour: Behaviour, *, ours: bool = True) -> None:
        self.behaviour = behaviour
        self.ours = ours
        self.crashes: list[Crash] = []
        self.tried: Counter[str] = Counter()
        self.lock = threading.Lock()

    def served(self, key: str | None = None) -> list[Served]:
        with self.lock:
            crashes = tuple(self.crashes)
        one = Served(
            "k", ("", 0), "a", "", "aarch64", self.ours, False, 0, 0, None, len(crashes), crashes
        )
        other = Served("k", ("", 0), "b", "", "aarch64", self.ours, False, 0, 0, None, 0, ())
        return [one, other]

    def free(self, key: str) -> int:
        return 2

    def remember(self, candidate: str, cause: str) -> None:
        with self.lock:
            self.crashes.append(Crash(len(self.crashes), cause, candidate, 0))

    def measured(self, candidate: str) -> Outcome:
        request = MeasureRequest(Path(f"/{candidate}/kernel.so"), Path("/nowhere"), 1, 1, 1, 1, 1)
        runner = RpcRunner(self, "k", DEVICE, make=lambda: Session(self), waits=WAITS)
        runner.start()
        return runner.measure(request)


@dataclass
class Session:
    fake: Fake

    def ask(self, request: Message, *, timeout: float) -> Message:
        if request["op"] != "measure":
            return {"info": {"serial": "a"}}
        candidate = request["candidate"]
        with self.fake.lock:
            self.fake.tried[candidate] += 1
            times = self.fake.tried[candidate]
        return self.fake.behaviour(self.fake, candidate, times)

    def stop(self) -> None:
        pass


def crash(fake: Fake, candidate: str, times: int) -> Message:
    fake.remember(candidate, "SIGSEGV")
    return {"lost": "the connection was closed"}


def test_a_candidate_that_crashes_twice_is_quarantined() -> None:
    fake = Fake(crash)
    outcome = fake.measured("c")
    assert outcome.status == "run_error"
    assert "SIGSEGV" in outcome.message
    assert "quarantined" in outcome.message
    assert fake.tried["c"] == 2


def test_a_candidate_that_crashes_once_is_measured() -> None:
    fake = Fake(lambda f, c, times: crash(f, c, times) if times == 1 else OK)
    assert fake.measured("c").ok


def test_a_link_that_is_cut_is_not_the_candidates_fault() -> None:
    def cut(fake: Fake, candidate: str, times: int) -> Message:
        if times < 4:
            fake.remember(candidate, "client gone")
            return {"lost": "the connection was closed"}
        return OK

    assert Fake(cut).measured("c").ok


def test_a_link_that_is_cut_for_ever_is_given_up() -> None:
    outcome = Fake(lambda *_: {"lost": "closed"}).measured("c")
    assert outcome.status == "run_error"
    assert "link" in outcome.message


@pytest.mark.parametrize("cause", ["client gone", "timeout", "hung in a driver, cannot be killed"])
def test_a_candidate_that_runs_into_its_limit_is_a_timeout(cause: str) -> None:
    def late(fake: Fake, candidate: str, times: int) -> Message:
        fake.remember(candidate, cause)
        raise WorkerLost("no answer within its time limit; killed", timed_out=True)

    fake = Fake(late)
    assert fake.measured("c").status == "timeout"
    assert fake.tried["c"] == 1


def test_a_limit_that_passed_on_a_device_that_was_gone_says_nothing_of_the_candidate() -> None:
    def gone(fake: Fake, candidate: str, times: int) -> Message:
        if times == 1:
            raise WorkerLost("no answer within its time limit; killed", timed_out=True)
        return OK

    assert Fake(gone).measured("c").ok


def test_a_server_that_remembers_nothing_leaves_the_candidate_to_blame() -> None:
    fake = Fake(lambda *_: {"lost": "closed"}, ours=False)
    outcome = fake.measured("c")
    assert outcome.status == "run_error"
    assert fake.tried["c"] == 2


def test_two_candidates_that_crash_at_once_are_judged_apart() -> None:
    together = threading.Barrier(2)

    def both(fake: Fake, candidate: str, times: int) -> Message:
        fake.remember(candidate, "SIGSEGV")
        together.wait(5)
        return {"lost": "closed"}

    fake = Fake(both)
    runner = RpcRunner(fake, "k", DEVICE, make=lambda: Session(fake), waits=WAITS)
    runner.start()
    requests = [
        MeasureRequest(Path(f"/{c}/kernel.so"), Path("/nowhere"), 1, 1, 1, 1, 1) for c in "cd"
    ]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(runner.measure, requests))
    assert all("quarantined" in outcome.message for outcome in outcomes), outcomes
    assert fake.tried == {"c": 2, "d": 2}
