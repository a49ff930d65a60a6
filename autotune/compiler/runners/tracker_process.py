"""TVM's RPC tracker as one process that dies with its parent. Arguments: address, port.

`python -m tvm.exec.rpc_tracker` leaves the process that does the work behind when it is killed, and with it the
port.
"""

from __future__ import annotations

import sys

from autotune.compiler.workers import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from tvm.rpc.tracker import PopenTrackerServerState

    host, port = sys.argv[1], int(sys.argv[2])
    PopenTrackerServerState(host, port, port + 1, silent=True).thread.join()
