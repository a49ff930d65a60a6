"""Ports of this host's loopback."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Returns a port that was free a moment ago. Another process may take it meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
