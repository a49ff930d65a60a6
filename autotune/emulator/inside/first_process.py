"""The first process of an emulated phone. It starts commands, opens ports, and collects ended processes.

It runs as process 1 of its own process, mount and network namespaces, so all of its children end with it. It ends
when the phone's owner outside closes the socket between them.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  (afterwards there are no modules to be found any more)
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from autotune.emulator.adbd.sync_service import SyncService
from autotune.emulator.inside import root_folder
from autotune.emulator.inside.cores import Cores
from autotune.emulator.inside.plan import Plan

_LARGEST_REQUEST = 1 << 17
_MOST_DESCRIPTORS = 4
_SHELL = "/system/bin/sh"
_SHELL_UID = 2000
# Groups of adb's shell: log, input, sdcard_rw, the network, statistics, /proc.
_SHELL_GROUPS = (1004, 1007, 1015, 3001, 3002, 3003, 3006, 3009)
_CANNOT_START = 126
_HOST = "127.0.0.1"


class FirstProcess:
    """Carries out requests of the phone's owner over a socket.

    Args:
        control: The socket; each message is one request or one answer.
        environment: Environment of the commands.
        cores: Answers which cores they may use; None for the cores of this machine.
    """

    def __init__(
        self, control: socket.socket, environment: dict[str, str], cores: Cores | None
    ) -> None:
        self._control = control
        self._environment = environment
        self._cores = cores
        self._status: dict[int, int] = {}

    def serve(self) -> None:
        """Serves until the owner is gone."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        control = self._control.fileno()
        watched = [control, wake, *([self._cores.listener] if self._cores else [])]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if self._cores and self._cores.listener in ready:
                self._cores.answer()
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
                self._bury()
            if control in ready and not self._answer():
                return

    def _answer(self) -> bool:
        try:
            message, descriptors, _, _ = socket.recv_fds(
                self._control, _LARGEST_REQUEST, _MOST_DESCRIPTORS
            )
        except ConnectionError:
            return False
        if not message:
            return False
        for descriptor in descriptors:
            # A process that outlives its command must not keep the command's pipes open.
            os.set_inheritable(descriptor, False)
        given: list[int] = []
        try:
            request = json.loads(message)
            given = self._do(request, descriptors)
            answer: dict[str, Any] = {}
        except OSError as error:
            answer = {"errno": error.errno or 5}
        with suppress(ConnectionError):
            socket.send_fds(self._control, [json.dumps(answer).encode()], given)
        for descriptor in (*descriptors, *given):
            with suppress(OSError):
                os.close(descriptor)
        return True

    def _do(self, request: dict[str, Any], descriptors: list[int]) -> list[int]:
        what = request["do"]
        if what == "shell":
            return self._shell(
                request["command"], request["terminal"], request["root"], descriptors
            )
        if what == "sync":
            self._forked(lambda: _sync(descriptors[0], root=request["root"]))
            return []
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
            if what == "connect":
                made.connect((_HOST, request["port"]))
            else:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind((_HOST, request["port"]))
                made.listen(64)
            return [made.detach()]

    def _shell(self, command: str, terminal: bool, root: bool, descriptors: list[int]) -> list[int]:
        """Starts a command. Its exit code goes to the first descriptor; the others are its 0, 1 and 2."""
        status, *ends = descriptors
        given = []
        if terminal:
            master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            ends = [_slave(master)]
            given = [master]
        argv = [_SHELL, "-c", command] if command else [_SHELL, *(["-i"] if terminal else [])]

        def start() -> None:
            os.setsid()
            if terminal:
                fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(ends[min(number, len(ends) - 1)], number)
            environment = dict(self._environment)
            environment |= {"USER": "root", "LOGNAME": "root"} if root else {}
            environment |= {"TERM": "xterm-256color"} if terminal else {}
            _become(root=root)
            os.execve(_SHELL, argv, environment)

        try:
            self._status[self._forked(start)] = os.dup(status)
        finally:
            if terminal:
                os.close(ends[0])
        return given

    def _forked(self, work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            for number in (*range(1, 32), *range(34, 65)):
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_DFL)
            work()
            os._exit(0)
        except BaseException as error:
            with suppress(OSError):
                os.write(2, f"{error}\n".encode())
        finally:
            os._exit(_CANNOT_START)

    def _bury(self) -> None:
        while True:
            try:
                pid, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            status = self._status.pop(pid, None)
            if status is not None:
                code = os.waitstatus_to_exitcode(how)
                with suppress(OSError):
                    os.write(status, bytes([(code if code >= 0 else 128 - code) & 0xFF]))
                os.close(status)


def _slave(master: int) -> int:
    """Returns the other end of a terminal, unlocked, in the state that adb's shell expects."""
    fcntl.ioctl(master, 0x40045431, bytes(4))  # TIOCSPTLCK
    number = int.from_bytes(fcntl.ioctl(master, 0x80045430, bytes(4)), "little")  # TIOCGPTN
    return os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


def _become(*, root: bool) -> None:
    os.umask(0o077 if root else 0o022)
    os.chdir("/")
    if not root:
        os.setgroups(_SHELL_GROUPS)
        os.setresgid(_SHELL_UID, _SHELL_UID, _SHELL_UID)
        os.setresuid(_SHELL_UID, _SHELL_UID, _SHELL_UID)


def _sync(descriptor: int, *, root: bool) -> None:
    _become(root=root)
    os.umask(0)
    with socket.socket(fileno=os.dup(descriptor)) as link:
        os.closerange(3, link.fileno())
        os.closerange(link.fileno() + 1, 256)
        SyncService(link).serve()


def main() -> None:
    """Takes the numbers of the control socket and `/dev/fuse` as arguments, and the plan from the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    fuse = int(sys.argv[2])
    os.set_inheritable(control.fileno(), False)
    os.set_inheritable(fuse, False)
    plan = Plan.from_json(control.recv(_LARGEST_REQUEST).decode())
    try:
        root_folder.build(plan, fuse)
        root_folder.prepare_data()
        os.close(fuse)
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        raise SystemExit(1) from error
    control.send(b"{}")
    cores = None
    with suppress(OSError):
        cores = Cores()
    FirstProcess(control, dict(plan.environment), cores).serve()
    os._exit(0)
