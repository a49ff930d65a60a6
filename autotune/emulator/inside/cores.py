"""The cores that a phone's processes may use: emulated ones, of which this machine may have fewer.

The kernel forwards `sched_setaffinity` and `sched_getaffinity` of every process in the phone to its first process
(seccomp's user notification). The first process answers for the emulated cores. This machine decides where a
process really runs. `/proc/PID/status` still shows this machine's cores.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ONLINE = Path("/sys/devices/system/cpu/online")
_PRESENT = Path("/sys/devices/system/cpu/present")

# seccomp, sched_setaffinity, sched_getaffinity, setsid
_CALLS = {"x86_64": (317, 203, 204, 112), "aarch64": (277, 122, 123, 157)}
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_RESPONSE = struct.Struct("<QqiI")
_INSTRUCTION = struct.Struct("<HBBI")
_WORD = 8
_START_TIME = 19  # A field of /proc/PID/stat after the program's name.
_MOST_REMEMBERED = 4096


@dataclass(frozen=True)
class _Task:
    """A thread as shown in /proc."""

    thread: int
    process: int
    parent: int
    started: int
    uid: int


class Cores:
    """Answers for the emulated cores.

    Attributes:
        listener: Readable when a process asks.

    Raises:
        OSError: This machine's kernel has no such notifications, or a container blocks them.
    """

    def __init__(self) -> None:
        seccomp, self._set, self._get, self._new_session = _CALLS[platform.machine()]
        calls = (self._set, self._get, self._new_session)
        program = [_INSTRUCTION.pack(_LOAD_WORD, 0, 0, 0)]
        for index, call in enumerate(calls):
            program.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, len(calls) - index, 0, call))
        program += [_INSTRUCTION.pack(_RETURN, 0, 0, k) for k in (_ALLOW, _NOTIFY)]
        code = ctypes.create_string_buffer(b"".join(program))
        wanted = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code))
        libc = ctypes.CDLL(None, use_errno=True)
        self.listener = libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, wanted)
        if self.listener < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"seccomp: {os.strerror(number)}")
        os.set_inheritable(self.listener, False)
        self._allowed: dict[int, tuple[int, int]] = {}

    def answer(self) -> None:
        """Answers one request."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, buffer)
        except OSError:
            return  # The process that asked is gone.
        number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        value, error, flags = 0, 0, 0
        try:
            asking = _task(thread)
            if call == self._new_session:
                # The last moment at which a daemon's parent is certainly known.
                self._allowed[thread] = (asking.started, self._mask(asking))
                flags = _CONTINUE
            elif call == self._set:
                self._choose(asking, *arguments[:3])
            else:
                value = self._tell(asking, *arguments[:3])
        except OSError as failure:
            error = -(failure.errno or errno.EIO)
        with suppress(OSError):
            fcntl.ioctl(self.listener, _SEND, _RESPONSE.pack(number, value, error, flags))

    def _choose(self, asking: _Task, pid: int, size: int, address: int) -> None:
        target = _task(pid & 0xFFFFFFFF) if pid else asking
        if asking.uid not in (0, target.uid):
            raise OSError(errno.EPERM, "")
        with Path(f"/proc/{asking.thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            data = memory.read(min(size, 1024))
        mask = int.from_bytes(data, "little") & _cores(_PRESENT)
        if not mask & _cores(_ONLINE):
            raise OSError(errno.EINVAL, "")
        if len(self._allowed) > _MOST_REMEMBERED:
            self._allowed = {t: a for t, a in self._allowed.items() if Path(f"/proc/{t}").exists()}
        self._allowed[target.thread] = (target.started, mask)

    def _tell(self, asking: _Task, pid: int, size: int, address: int) -> int:
        if size < _WORD or size % _WORD:
            raise OSError(errno.EINVAL, "")
        target = _task(pid & 0xFFFFFFFF) if pid else asking
        mask = self._mask(target) & _cores(_ONLINE)
        with Path(f"/proc/{asking.thread}/mem").open("r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(mask.to_bytes(_WORD, "little"))
        return _WORD

    def _mask(self, task: _Task) -> int:
        """Returns the cores that a thread, or the process that started it, was given."""
        known = self._allowed.get(task.thread)
        if known and known[0] == task.started:
            return known[1]
        above = task.process if task.thread != task.process else task.parent
        if above > 1:
            with suppress(OSError):
                return self._mask(_task(above))
        return _cores(_PRESENT)


def _cores(path: Path) -> int:
    """Returns a list of cores such as `0-3,6` as bits."""
    bits = 0
    for part in path.read_text().strip().split(","):
        first, _, last = part.partition("-")
        for core in range(int(first), int(last or first) + 1):
            bits |= 1 << core
    return bits & (1 << 8 * _WORD) - 1


def _task(thread: int) -> _Task:
    """Reads a thread from /proc. Raises OSError (ESRCH) if there is none."""
    try:
        fields = Path(f"/proc/{thread}/stat").read_text(errors="replace").rpartition(")")[2].split()
        lines = Path(f"/proc/{thread}/status").read_text(errors="replace").splitlines()
    except OSError as error:
        raise OSError(errno.ESRCH, "") from error
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return _Task(
        thread=thread,
        process=int(status["Tgid"][0]),
        parent=int(status["PPid"][0]),
        started=int(fields[_START_TIME]),
        uid=int(status["Uid"][1]),
    )
