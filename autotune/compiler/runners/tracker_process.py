"""TVM's RPC tracker as one process that dies with its parent. Arguments: address, port.

When `python -m tvm.exec.rpc_tracker` is killed, its child process survives and keeps the port.
"""

from __future__ import annotations

import sys

from autotune.compiler.workers import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from tvm.rpc.tracker import PopenTrackerServerState

    host, port = sys.argv[1], int(sys.argv[2])
    PopenTrackerServerState(host, port, port + 1, silent=True).thread.join()
