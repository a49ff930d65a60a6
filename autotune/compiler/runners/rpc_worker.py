"""An RPC worker: checks and times kernels on a device behind a tracker, in a session that it keeps open.

Arguments: `cpu` or `opencl`, and a JSON object with `host`, `port`, `key` and `session_timeout_s`. Requests are
those of `run_worker`, with the candidate's name in `candidate`, and `{"op": "open"}`, `{"op": "close"}`, `{"op":
"opencl"}` and `{"op": "conditions"}`. Answers to requests that run a candidate have `conditions`: the device's
conditions before and after, as far as its server reports them.

The answer `{"lost": text}` means that the session is gone, or that its device no longer works. TVM's client cannot
recover from this, so the worker must be replaced.
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
"""A run is timed from here if it takes at least this long, and this many times the round trip to the device."""


class Session:
    """One session at a time, opened on request.

    Args:
        kind: The device's kind.
        about: Address of the tracker, the key, and the longest time of a session in seconds.
    """

    def __init__(self, kind: str, about: dict[str, Any]) -> None:
        self._kind = kind
        self._about = about
        self._session: Any = None
        self._bench: SessionTimer | None = None
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
        """Carries out a request that runs a candidate, and reads the conditions before and after it."""
        self._say(request["candidate"])
        before = self._conditions()
        answer = bench.carry_out(request)
        self._say("")
        return {**answer, "conditions": before + self._conditions()}

    def _conditions(self) -> list[Any]:
        """Returns one reading of the device's temperatures, clocks and cores; empty if the server is not ours."""
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
        self._bench = SessionTimer(self._session, self._kind)
        self._functions.clear()
        info = self._function("autotune.server.info")
        return {"info": parse_json(str(info())) if info else {}}

    def _opencl(self) -> Message:
        """Returns the session's OpenCL devices, as the sidecar lists them; null if the server has none."""
        devices = self._function("autotune.opencl.devices")
        return {"device": parse_json(str(devices())) if devices else None}

    def _function(self, name: str) -> Any:
        """Returns a function of our own server, looked up once per session; None if the server is not ours."""
        if name not in self._functions:
            try:
                self._functions[name] = self._session.get_function(name)
            except Exception:
                self._functions[name] = None
        return self._functions[name]

    def _say(self, candidate: str) -> None:
        """Tells the server which candidate runs next, so that it can name the one that killed it."""
        function = self._function("autotune.server.candidate")
        if function is not None:
            function(candidate)

    def _alive(self) -> bool:
        """Returns whether the session still answers: after an error, kernel or session may be at fault."""
        if self._session is None:
            return False
        try:
            self._session.get_function("runtime.GetDeviceAttr")
        except Exception:
            return False
        self._say("")
        return True


class SessionTimer(KernelTimer):
    """Measures over a session."""

    def __init__(self, session: Any, kind: str) -> None:
        super().__init__(session.device(kind, 0))
        self._session = session

    def _load(self, path: str) -> tuple[Any, Any]:
        # Here, each candidate has its own folder; on the device, all share one. So the folder's name becomes the
        # file's.
        name = f"{Path(path).parent.name}.so"
        self._session.upload(path, target=name)
        library = self._session.load_module(name)
        self._session.remove(name)  # It stays loaded; this saves space on the phone.
        return library, library["main"]

    def _once(self, library: Any, function: Any) -> float:
        # Not the first execution, in which a GPU's driver compiles.
        taken = self._execute(function)
        start = time.perf_counter()
        self._device.sync()
        way = time.perf_counter() - start
        if taken > max(_LONGER_THAN_THE_WAY_S, _FAR_LONGER * way):
            return taken
        # On the device's own clock, because the round trip takes longer than many kernels.
        return self._long(library, function)

    def _long(self, library: Any, function: Any) -> float:
        (seconds,) = self._time(library, number=1, repeats=1)
        return seconds


if __name__ == "__main__":
    import tvm.rpc  # noqa: F401  # imported before the worker says it is ready

    serve(sys.argv[1:], Session(sys.argv[2], json.loads(sys.argv[3])).handle)
