"""An RPC worker: checks and times kernels on a device behind a tracker, in a session that it opens and keeps.

Arguments: `cpu` or `opencl`, and a JSON object with `host`, `port`, `key` and `session_timeout_s`. Requests are
those of `run_worker`, with the candidate's name in `candidate`, and `{"op": "open"}`, `{"op": "close"}`,
`{"op": "opencl"}` and `{"op": "conditions"}`. Answers to what runs a candidate have `conditions`: what the device
told before and after, as far as its server does.

An answer `{"lost": text}` says that the session is gone, or that its device does nothing any more. TVM's client
does not recover from that: the worker is to be replaced.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from autotune.compiler.runners.run_worker import KernelTimer
from autotune.compiler.workers import Message, serve
from autotune.reading import parse_json

_PRIORITY = 1
_LONGER_THAN_THE_WAY_S, _FAR_LONGER = 0.03, 20
"""What takes so long, and so many times as long as the way to the device and back, may be timed from here."""


class Session:
    """One session at a time, opened when asked.

    Args:
        kind: The device's kind.
        about: Where the tracker is, the key, and how long a session may take in seconds.
    """

    def __init__(self, kind: str, about: dict[str, Any]) -> None:
        self._kind = kind
        self._about = about
        self._session: Any = None
        self._bench: SessionBench | None = None
        self._functions: dict[str, Any] = {}

    def handle(self, request: Message) -> Message:
        """Carries out one request."""
        try:
            if request["op"] == "open":
                return self._open()
            if request["op"] == "close":
                self._bench = self._session = None
                self._functions.clear()
                return {}
            if self._bench is None:
                return {"lost": "no session is open"}
            if request["op"] == "opencl":
                return self._opencl()
            if request["op"] == "conditions":
                return {"conditions": self._conditions()}
            if request["op"] == "load":
                return self._bench.carry_out(request)
            answer = self._timed(self._bench, request)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._alive() and (self._bench is None or self._bench.works()):
                return {"error": text}
            return {"lost": text}
        return answer

    def _timed(self, bench: KernelTimer, request: Message) -> Message:
        """Carries out a request that runs a candidate, and asks for the conditions on both sides of it."""
        self._say(request["candidate"])
        before = self._conditions()
        answer = bench.carry_out(request)
        self._say("")
        return {**answer, "conditions": before + self._conditions()}

    def _conditions(self) -> list[Any]:
        """What the device tells of heat, clocks and cores: one reading; none from another server than ours."""
        function = self._function("autotune.server.conditions")
        return [parse_json(str(function()))] if function else []

    def _open(self) -> Message:
        from tvm import rpc

        tracker = rpc.connect_tracker(self._about["host"], self._about["port"])
        self._session = tracker.request(
            self._about["key"],
            priority=_PRIORITY,
            session_timeout=self._about["session_timeout_s"],
        )
        self._bench = SessionBench(self._session, self._kind)
        self._functions.clear()
        info = self._function("autotune.server.info")
        return {"info": parse_json(str(info())) if info else {}}

    def _opencl(self) -> Message:
        """The session's OpenCL devices, as the sidecar lists them; null where the server has none."""
        devices = self._function("autotune.opencl.devices")
        return {"device": parse_json(str(devices())) if devices else None}

    def _function(self, name: str) -> Any:
        """A function of our own server, asked for once a session; None on another one."""
        if name not in self._functions:
            try:
                self._functions[name] = self._session.get_function(name)
            except Exception:
                self._functions[name] = None
        return self._functions[name]

    def _say(self, candidate: str) -> None:
        """Tells the server what runs next, so that it can say what killed it."""
        function = self._function("autotune.server.candidate")
        if function is not None:
            function(candidate)

    def _alive(self) -> bool:
        """Whether the session still answers: an error may be the kernel's, or the session's own end."""
        if self._session is None:
            return False
        try:
            self._session.get_function("runtime.GetDeviceAttr")
        except Exception:
            return False
        self._say("")
        return True


class SessionBench(KernelTimer):
    """Measures over a session."""

    def __init__(self, session: Any, kind: str) -> None:
        super().__init__(session.device(kind, 0))
        self._session = session

    def _load(self, path: str) -> tuple[Any, Any]:
        # One folder a candidate here, one folder for all there: the folder's name becomes the file's.
        name = f"{Path(path).parent.name}.so"
        self._session.upload(path, target=name)
        library = self._session.load_module(name)
        self._session.remove(name)  # What is loaded stays; what was tried fills no phone.
        return library, library["main"]

    def _once(self, library: Any, function: Any) -> float:
        # Not the first execution, for which a GPU's driver compiles.
        taken = self._execute(function)
        start = time.perf_counter()
        self._device.sync()
        way = time.perf_counter() - start
        if taken > max(_LONGER_THAN_THE_WAY_S, _FAR_LONGER * way):
            return taken
        # On the device's own clock: the way there and back takes longer than many kernels.
        return self._long(library, function)

    def _long(self, library: Any, function: Any) -> float:
        (seconds,) = self._time(library, number=1, repeats=1)
        return seconds


if __name__ == "__main__":
    import tvm.rpc  # noqa: F401  # imported before the worker says it is ready

    serve(sys.argv[1:], Session(sys.argv[2], json.loads(sys.argv[3])).handle)
