"""A worker whose requests make it answer, hang, crash or fail: the real process, real signals."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from autotune.compiler.workers.workers import serve


def handle(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            time.sleep(600)
        case "crash":
            print("about to crash", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "die":
            deaths = Path(request["deaths"])
            with deaths.open("a") as file:
                file.write("x")
            if deaths.stat().st_size <= request["times"]:
                os.kill(os.getpid(), request["signal"])
        case "take":
            taken = bytearray(b"x" * (request["mib"] << 20))
            time.sleep(request["seconds"])
            del taken
        case "exit":
            os._exit(3)
        case "raise":
            raise ValueError("no such kernel")
        case "sleep":
            time.sleep(request["seconds"])
    return {"pid": os.getpid(), "echo": request.get("echo")}


if __name__ == "__main__":
    serve(sys.argv[1:], handle)
