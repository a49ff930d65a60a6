"""System calls of Linux that Python does not offer."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from fcntl import ioctl

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Calls `mount(2)`. Raises OSError."""
    _libc.mount.argtypes = (
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_ulong,
        ctypes.c_char_p,
    )
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode())
    _check(done, f"mount {source or kind} at {target}")


def bind(source: str, target: str, *, recursive: bool = False, read_only: bool = False) -> None:
    """Makes a file or folder appear at a second place. Raises OSError."""
    mount(source, target, flags=MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        mount("", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: str) -> None:
    """Removes a mount as soon as it is unused. Raises OSError."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def change_root(folder: str) -> None:
    """Makes a mounted folder the root of this mount namespace, and removes the old root. Raises OSError."""
    os.chdir(folder)
    # With the same folder for both arguments, the old root lies over the new one and needs no place in it.
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), f"pivot_root {folder}")
    unmount(".")
    os.chdir("/")


def loopback_up() -> None:
    """Switches this network namespace's loopback on. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", ioctl(any_socket, _SIOCGIFFLAGS, request))
        ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
