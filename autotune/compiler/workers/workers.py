"""Worker processes that live for a whole run. They are killed and replaced when they hang or crash.

A worker is a Python module that runs as a child process. Requests and answers are JSON objects over a private
socket. So output of a compiler or driver cannot be mistaken for an answer, and nothing is unpickled.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from autotune.children import MOST_OUTPUT_BYTES, LastWords
from autotune.compiler.workers.kills import (
    MOST_KILLS,
    MOST_MEMORY_KILLS,
    Kill,
    Notify,
    of_outside,
    oom_kills,
    warn,
)

Message = dict[str, Any]
_START_TIMEOUT_S = 120.0
_TAIL_BYTES = 2000
_CANCEL_POLL_S = 0.2
_START_S = 2.5
"""Approximate time that a worker needs to import TVM."""
_JOB_S = 0.5
"""Assumed time of a job before one is finished."""
_RECENT_JOBS = 4
"""Approximate number of jobs in the running mean of their times."""


class WorkerLost(Exception):  # noqa: N818  # what happened, as KeyboardInterrupt is
    """A worker crashed, or was killed: at its time limit, or from outside. The text says which."""

    def __init__(self, message: str, *, timed_out: bool, killed: Kill = "") -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.killed = killed


class ToolKilled(Exception):  # noqa: N818  # as above
    """A program that a worker called was killed from outside."""


class Worker:
    """One child process that answers requests one at a time.

    Args:
        module: Python module with a `serve` loop, run with `python -m`.
        arguments: Further command-line arguments.
        environment: Variables added to this process's own.
    """

    def __init__(
        self,
        module: str,
        arguments: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._said: LastWords | None = None
        self._deadline = 0.0
        self._ready = False
        self._oom_kills = 0

    @property
    def connection(self) -> Connection[Any, Any]:
        """The socket to wait on. It is valid only after `send`."""
        if self._connection is None:
            raise RuntimeError("the worker has not been started")
        return self._connection

    @property
    def deadline(self) -> float:
        """The `time.monotonic()` at which the present request or start-up is given up."""
        return self._deadline

    @property
    def started(self) -> bool:
        """Whether a process was started. It may have ended since."""
        return self._process is not None

    @property
    def ready(self) -> bool:
        """Whether its process has accepted a request."""
        return self._ready

    def start(self) -> None:
        """Starts the process if none is alive; returns at once."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair()
        self._process = self._launched(theirs.fileno())
        theirs.close()
        if self._process.stdout is not None:
            self._said = LastWords(self._process.stdout, _TAIL_BYTES)
        self._connection = Connection(ours.detach())
        self._ready = False
        self._deadline = time.monotonic() + _START_TIMEOUT_S

    def _launched(self, descriptor: int) -> subprocess.Popen[bytes]:
        """Returns the process, whose socket has this file descriptor."""
        return subprocess.Popen(
            [sys.executable, "-m", self._module, str(descriptor), *self._arguments],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )

    def send(self, request: Message, *, timeout: float) -> None:
        """Sends a request. The answer must come within `timeout` seconds, not counting start-up.

        Raises:
            WorkerLost: The process is gone, and could not be restarted.
        """
        self._oom_kills = oom_kills()
        self.start()
        self._await_ready()
        try:
            self.connection.send_bytes(json.dumps(request).encode())
        except OSError as error:
            raise self._lost(timed_out=False) from error
        self._deadline = time.monotonic() + timeout

    def receive(self) -> Message:
        """Waits for the answer to the request in flight.

        Raises:
            WorkerLost: The process died, or was killed at its time limit.
        """
        remaining = max(0.0, self._deadline - time.monotonic())
        return self._read(remaining)

    def ask(self, request: Message, *, timeout: float) -> Message:
        """Sends one request and waits for its answer; see `send` and `receive`."""
        self.send(request, timeout=timeout)
        return self.receive()

    def ask_again(self, request: Message, *, timeout: float, notify: Notify = warn) -> Message:
        """Like `ask`, but repeats the request if the worker was killed from outside.

        Args:
            request: The request.
            timeout: Limit for each answer in seconds.
            notify: Called with a message for each kill.

        Raises:
            WorkerLost: It crashed, exceeded its time limit, or was killed too often.
        """
        kills = Kills()
        while True:
            try:
                return self.ask(request, timeout=timeout)
            except WorkerLost as lost:
                kills.count(lost, notify, alone=True)

    def stop(self) -> None:
        """Kills the process, if there is one, and closes the socket."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # Its session has its own process group.
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = self._said = None
        self._ready = False

    def _await_ready(self) -> None:
        if not self._ready:
            self._read(_START_TIMEOUT_S)
            self._ready = True

    def _read(self, timeout: float) -> Message:
        try:
            if not self.connection.poll(timeout):
                raise self._lost(timed_out=True)
            answer: Message = json.loads(self.connection.recv_bytes(MOST_OUTPUT_BYTES))
        except (EOFError, OSError) as error:
            raise self._lost(timed_out=False) from error
        if "killed" in answer:
            raise _killed(str(answer["killed"]), self._oom_kills)
        return answer

    def _lost(self, *, timed_out: bool) -> WorkerLost:
        code: int | None = None
        if not timed_out and self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=5)
        said = "" if timed_out or self._said is None else self._said.text()
        self.stop()
        if timed_out:
            return WorkerLost("no answer within its time limit; killed", timed_out=True)
        if of_outside(code):
            return _killed(f"a worker was killed by {_death(code)}", self._oom_kills)
        tail = f": {said}" if said else ""
        return WorkerLost(f"the worker died by {_death(code)}{tail}", timed_out=False)


def _death(code: int | None) -> str:
    if code is None:
        return "an unknown cause"
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def killed_by(code: int, before: int) -> WorkerLost:
    """Returns the error for a process that a signal from outside has ended.

    Args:
        code: Its exit code, as in `subprocess`.
        before: Result of `oom_kills` before its start.
    """
    return _killed(f"the process was killed by {_death(code)}", before)


def _killed(message: str, before: int) -> WorkerLost:
    if oom_kills() > before:
        return WorkerLost(f"out of memory: {message}", timed_out=False, killed="memory")
    return WorkerLost(f"{message} from outside", timed_out=False, killed="outside")


class Kills:
    """The kills that a request has survived."""

    def __init__(self) -> None:
        self._all = self._alone = 0

    def count(self, lost: WorkerLost, notify: Notify, *, alone: bool) -> None:
        """Counts a lost worker, and reports it. Returns if the request is to be repeated.

        Args:
            lost: How the worker was lost.
            notify: Called with a message for a kill.
            alone: Whether no other request was running that may have used the memory.

        Raises:
            WorkerLost: It was not a kill, or one kill too many.
        """
        if not lost.killed:
            raise lost
        self._all += 1
        self._alone += alone and lost.killed == "memory"
        if self._alone >= MOST_MEMORY_KILLS:
            times = f"{self._alone} times with nothing else at work"
            raise WorkerLost(f"{lost}, {times}", timed_out=False, killed="memory")
        if self._all >= MOST_KILLS + MOST_MEMORY_KILLS or (
            lost.killed == "outside" and self._all >= MOST_KILLS
        ):
            raise WorkerLost(f"{lost}, {self._all} times", timed_out=False, killed=lost.killed)
        notify(f"{lost}; its candidate is tried again")


@dataclass(frozen=True)
class Job:
    """A request of a pool, with its own time limit in seconds."""

    request: Message
    timeout: float


class WorkerPool:
    """Several equal workers that share a list of jobs.

    Args:
        make: Makes a worker.
        size: Most workers.
        notify: Called with a message for workers that were killed from outside.
        start_s: Start-up time of a worker in seconds. Another worker is started if the waiting jobs would take
            longer.
    """

    def __init__(
        self,
        make: Callable[[], Worker],
        size: int,
        notify: Notify = warn,
        start_s: float = _START_S,
    ) -> None:
        self._workers = [make() for _ in range(size)]
        self._notify = notify
        self._start_s = start_s
        self._job_s = _JOB_S
        self._cancelled = threading.Event()

    def start(self) -> None:
        """Starts the first worker, without waiting for it."""
        self._workers[0].start()

    def run(self, jobs: Iterable[Job]) -> list[Message | WorkerLost]:
        """Runs all jobs, and returns their answers in order. A lost worker is an answer too.

        A job is repeated if its worker was killed from outside. If memory had run out, it is repeated after all
        others, with no other job running.

        Raises:
            CancelledError: `cancel` was called meanwhile.
        """
        waiting = list(jobs)
        pending = list(range(len(waiting)))
        pending.reverse()
        alone: list[int] = []
        kills = [Kills() for _ in waiting]
        answers: dict[int, Message | WorkerLost] = {}
        idle = [worker for worker in self._workers if worker.ready]
        coming = [worker for worker in self._workers if worker.started and not worker.ready]
        cold = [worker for worker in self._workers if not worker.started]
        flying: dict[Connection[Any, Any], tuple[Worker, int, float]] = {}
        apart = False

        def lose(index: int, lost: WorkerLost) -> None:
            try:
                kills[index].count(lost, self._notify, alone=apart)
            except WorkerLost as final:
                answers[index] = final
            else:
                (alone if lost.killed == "memory" else pending).append(index)

        while len(answers) < len(waiting):
            if self._cancelled.is_set():
                raise CancelledError
            if not pending and not flying and alone:
                apart = True
                for worker in (*idle, *coming):  # This frees their memory.
                    worker.stop()
                cold += coming
                coming = []
                pending.append(alone.pop())
            while idle and pending and not (apart and flying):
                worker = idle.pop()
                index = pending.pop()
                job = waiting[index]
                try:
                    worker.send(job.request, timeout=job.timeout)
                except WorkerLost as lost:
                    lose(index, lost)
                    idle.append(worker)
                    continue
                flying[worker.connection] = (worker, index, time.monotonic())
            while cold and self._wants_another(len(pending), len(idle) + len(coming) + len(flying)):
                worker = cold.pop(0)
                worker.start()
                coming.append(worker)
            at_work = [*coming, *(worker for worker, _, _ in flying.values())]
            if not at_work:
                continue
            nearest = min(worker.deadline for worker in at_work) - time.monotonic()
            timeout = max(0.0, min(nearest, _CANCEL_POLL_S))
            ready = wait([worker.connection for worker in at_work], timeout=timeout)
            there = [w for w in at_work if w.connection in ready or w.deadline <= time.monotonic()]
            idle += [worker for worker in coming if worker in there]
            coming = [worker for worker in coming if worker not in there]
            for connection in [c for c, (worker, _, _) in flying.items() if worker in there]:
                worker, index, began = flying.pop(connection)
                self._job_s += (time.monotonic() - began - self._job_s) / _RECENT_JOBS
                try:
                    answers[index] = worker.receive()
                except WorkerLost as lost:
                    lose(index, lost)
                idle.append(worker)
        return [answers[index] for index in range(len(waiting))]

    def _wants_another(self, waiting: int, there: int) -> bool:
        """Returns whether one more worker would be ready before the present workers have done the waiting jobs."""
        return waiting > 0 and (not there or waiting * self._job_s > self._start_s * there)

    def cancel(self) -> None:
        """Makes `run` give up, in whichever thread it is. After that, only `stop` may be called."""
        self._cancelled.set()

    def stop(self) -> None:
        """Kills all workers."""
        for worker in self._workers:
            worker.stop()


def serve(argv: list[str], handle: Callable[[Message], Message]) -> None:
    """Runs the loop of a worker process: answers requests until its parent ends.

    Args:
        argv: Command-line arguments of the process; the first is the socket's file descriptor.
        handle: Maps a request to an answer. An exception becomes `{"error": text}`.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(int(argv[0]))
    connection.send_bytes(b"{}")
    for request in _requests(connection):
        try:
            answer = handle(request)
        except ToolKilled as killed:
            answer = {"killed": str(killed)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(answer).encode())


def _requests(connection: Connection[Any, Any]) -> Iterator[Message]:
    while True:
        try:
            yield json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent dies, so that no worker outlives a killed run."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
