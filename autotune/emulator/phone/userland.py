"""The inside of an emulated phone: Android's folders, its shell and commands, and programs for ARM under QEMU.

It runs in its own namespaces (mounts, processes, network, name). So everything that is started in it ends with it,
and none of its mounts are visible elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lazy_loader

from autotune.emulator.adbd import Mode, Process
from autotune.emulator.inside.plan import Plan
from autotune.errors import ToolchainError

_SOURCES = Path(__file__).parents[1] / "inside"
_PACKAGES = Path(__file__).parents[3], Path(lazy_loader.__file__).parents[1]
"""The folders of this project and of the module that its faces import. Python finds nothing else there."""
_MOUNT_POINTS = Path("/run/autotune-emulator")
_ARM_LIBRARIES = "/usr/aarch64-linux-gnu/lib"
_PREFIX = "/system/arm"
_QEMU = "/system/bin/qemu-aarch64"
_PRELOADED = "/system/lib64/librun_arm.so"
_START_TIMEOUT_S = 20.0
_ANSWER_TIMEOUT_S = 10.0
_NOT_ON_A_PHONE = {
    *(
        "su",
        "login",
        "passwd",
        "mkpasswd",
        "sh",
        "getty",
        "oneit",
        "openvt",
        "reboot",
        "poweroff",
        "halt",
    ),
    *("mount", "umount", "nsenter", "unshare", "chroot", "pivot_root", "switch_root", "httpd"),
}
_ALSO = ("dd", "tr", "expr", "diff")
"""Programs of phones that Debian's toybox lacks."""
_ENVIRONMENT = {
    "PATH": "/product/bin:/system/bin:/system/xbin:/vendor/bin",
    "HOME": "/",
    "SHELL": "/system/bin/sh",
    "USER": "shell",
    "LOGNAME": "shell",
    "ANDROID_ROOT": "/system",
    "ANDROID_DATA": "/data",
    "TMPDIR": "/data/local/tmp",
}
_GETPROP = """#!/system/bin/sh
while IFS='=' read -r name value; do
  if [ $# -eq 0 ]; then printf '[%s]: [%s]\\n' "$name" "$value"
  elif [ "$name" = "$1" ]; then printf '%s\\n' "$value"; exit 0
  fi
done < /system/build.prop
if [ $# -gt 0 ]; then printf '%s\\n' "$2"; fi
"""


@dataclass(frozen=True)
class Contents:
    """The content of a phone, in addition to what all phones have.

    Attributes:
        properties: Output of `getprop`.
        programs: Scripts for the phone's shell, by name, such as `dumpsys`; they begin with `#!/system/bin/sh`.
        files: Texts by path, such as the text of a library that is to be found.
        kernel_files: Paths outside `/sys` that the emulated kernel answers, such as `/proc/cpuinfo`.
        su: Whether there is a `su`.
        data_bytes: Space in `/data`.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    kernel_files: Sequence[str] = ()
    su: bool = False
    data_bytes: int = 256 << 20


class Userland:
    """The phone's storage, which survives its reboots, and everything that runs in it between two boots.

    Args:
        contents: Its content.

    Raises:
        ToolchainError: This machine lacks a part that the phone needs.
    """

    def __init__(self, contents: Contents) -> None:
        missing = missing_parts()
        if missing:
            raise ToolchainError(
                f"an emulated phone needs {missing[0]}", hint="; ".join(missing[1:])
            )
        self._contents = contents
        self._control: socket.socket | None = None
        self._boot: subprocess.Popen[bytes] | None = None
        self._answering = threading.Lock()
        self._built = _built()
        for name in ("root", "data"):
            (_MOUNT_POINTS / name).mkdir(parents=True, exist_ok=True)
        self._storage = self._hold_storage()

    def _hold_storage(self) -> subprocess.Popen[bytes]:
        """Starts a process with `/data` in its mount namespace. It ends when this process does."""
        options = f"mode=771,uid=1000,gid=1000,size={self._contents.data_bytes}"
        script = f"mount -t tmpfs -o {options} tmpfs {_MOUNT_POINTS}/data && echo && exec cat >&2"
        holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert holder.stdout is not None
        with holder.stdout as said:
            if said.read(1) != b"\n":
                holder.kill()
                holder.wait()
                raise ToolchainError(
                    "an emulated phone needs namespaces of its own",
                    hint="run it as root, in a container with CAP_SYS_ADMIN",
                )
        return holder

    def boot(self, fuse: int) -> None:
        """Starts the phone's first process.

        Args:
            fuse: An open `/dev/fuse`; its other side answers for the kernel's files.

        Raises:
            ToolchainError: It does not start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = (
            f"import sys; sys.path[:0] = {[str(folder) for folder in _PACKAGES]!r}; "
            "from autotune.emulator.inside.first_process import main; main()"
        )
        with theirs:
            self._boot = subprocess.Popen(
                [
                    *("nsenter", f"--mount=/proc/{self._storage.pid}/ns/mnt"),
                    *("unshare", "-m", "-p", "-n", "-u", "-i", "-f", "--kill-child"),
                    *("--propagation", "private"),
                    *(sys.executable, "-I", "-S", "-c", code, str(theirs.fileno()), str(fuse)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), fuse),
                start_new_session=True,
            )
        ours.settimeout(_START_TIMEOUT_S)
        try:
            ours.send(self._plan().to_json().encode())
            answer = json.loads(ours.recv(4096) or b'{"failed": "it died"}')
        except OSError as error:
            answer = {"failed": str(error)}
        if answer:
            ours.close()
            self._boot.kill()
            output = self._boot.communicate()[1].decode(errors="replace").strip()
            self._boot = None
            raise ToolchainError(f"the emulated phone does not start: {answer['failed']} {output}")
        ours.settimeout(_ANSWER_TIMEOUT_S)
        self._control = ours

    def halt(self) -> None:
        """Ends everything that runs in the phone; `/data` stays."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._boot is not None:
            self._boot.kill()  # The first process dies with it, and with that everything else.
            self._boot.communicate()
            self._boot = None

    def close(self) -> None:
        """Ends the phone and releases its storage."""
        self.halt()
        self._storage.kill()
        self._storage.communicate()

    # Requests of the daemon.

    def shell(self, command: str, mode: Mode, *, root: bool) -> Process:
        """See `Inside.shell`."""
        status, status_there = os.pipe()
        ours: list[int] = []
        theirs = [status_there]
        try:
            if mode == "socket":
                here, there = socket.socketpair()
                ours = [here.detach()] * 2
                theirs.append(there.detach())
            elif mode == "pipes":
                ours, ends = _three_pipes()
                theirs += ends
            given = self._ask(
                "shell", theirs, command=command, terminal=mode == "terminal", root=root
            )
            if mode == "terminal":
                ours = [given[0], given[0]]
        except BaseException:
            for number in {status, *ours}:
                os.close(number)
            raise
        finally:
            for number in theirs:
                os.close(number)
        return Process(ours[0], ours[1], ours[2] if len(ours) > 2 else None, status)

    def sync(self, *, root: bool) -> int:
        """See `Inside.sync`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._ask("sync", [theirs.fileno()], root=root)
        return ours.detach()

    def connect(self, port: int) -> int:
        """See `Inside.connect`."""
        return self._ask("connect", [], port=port)[0]

    def listen(self, port: int) -> int:
        """See `Inside.listen`."""
        return self._ask("listen", [], port=port)[0]

    def _ask(self, what: str, descriptors: list[int], **details: Any) -> list[int]:
        request = json.dumps({"do": what, **details}).encode()
        with self._answering:
            if self._control is None:
                raise ConnectionError("the phone is off")
            socket.send_fds(self._control, [request], descriptors)
            data, given, _, _ = socket.recv_fds(self._control, 4096, 1)
        for descriptor in given:
            os.set_inheritable(descriptor, False)
        answer = json.loads(data or b'{"errno": 5}')
        if answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        return list(given)

    def _plan(self) -> Plan:
        contents = self._contents
        toybox = _program("toybox")
        listed = subprocess.run([toybox], capture_output=True, check=True, text=True).stdout.split()
        links = {f"/system/bin/{n}": "toybox" for n in listed if n not in _NOT_ON_A_PHONE}
        links |= {"/bin": "/system/bin", "/sdcard": "/data/media"}
        binds = {
            "/system/bin/sh": _program("mksh"),
            "/system/bin/toybox": toybox,
            _QEMU: _program("qemu-aarch64-static"),
            f"{_PREFIX}/lib": _ARM_LIBRARIES,
            _PRELOADED: str(self._built / "librun_arm.so"),
        }
        also = {name: found for name in _ALSO if (found := shutil.which(name))}
        binds |= {f"/system/bin/{name}": found for name, found in also.items()}
        for program in (_program("mksh"), toybox, *also.values()):
            binds |= {path: path for path in _libraries(program)}
        texts = {
            "/etc/passwd": (
                "root:x:0:0::/:/system/bin/sh\nshell:x:2000:2000::/:/system/bin/sh\n",
                0o644,
            ),
            "/etc/group": ("root:x:0:\nshell:x:2000:\ninet:x:3003:\n", 0o644),
            "/etc/hosts": ("127.0.0.1 localhost\n", 0o644),
            "/etc/ld.so.preload": (f"{_PRELOADED}\n", 0o644),
            # What programs for ARM find in its place.
            f"{_PREFIX}/etc/ld.so.preload": ("", 0o644),
            "/system/build.prop": (
                "".join(f"{name}={value}\n" for name, value in contents.properties.items()),
                0o644,
            ),
            "/system/bin/getprop": (_GETPROP, 0o755),
            **{f"/system/bin/{name}": (text, 0o755) for name, text in contents.programs.items()},
            **{path: (text, 0o644) for path, text in contents.files.items()},
        }
        if contents.su:
            binds["/system/bin/su"] = str(self._built / "su")
        return Plan(
            root_folder=str(_MOUNT_POINTS / "root"),
            data_folder=str(_MOUNT_POINTS / "data"),
            hostname="localhost",
            binds=binds,
            links=links,
            texts=texts,
            kernel_files=list(contents.kernel_files),
            environment=_ENVIRONMENT,
        )


def missing_parts() -> list[str]:
    """Returns the parts for emulated phones that this machine lacks, in words."""
    missing = [] if os.geteuid() == 0 else ["root"]
    if not Path("/dev/fuse").exists():
        missing.append("/dev/fuse (`modprobe fuse`)")
    if not missing and not _may_make_namespaces():
        missing.append("permission to make namespaces (CAP_SYS_ADMIN)")
    programs = {
        "unshare": "util-linux",
        "nsenter": "util-linux",
        "mksh": "mksh",
        "toybox": "toybox",
        "qemu-aarch64-static": "qemu-user-static",
        "cc": "gcc libc6-dev",
    }
    wanted = {package for name, package in programs.items() if shutil.which(name) is None}
    if not Path(_ARM_LIBRARIES, "ld-linux-aarch64.so.1").exists():
        wanted.add("libc6-arm64-cross libstdc++6-arm64-cross")
    if wanted:
        missing.append(f"Debian packages: apt install {' '.join(sorted(wanted))}")
    return missing


def _may_make_namespaces() -> bool:
    command = ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except FileNotFoundError:
        return True  # What is missing then is named as a package.
    except subprocess.TimeoutExpired:
        return False


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolchainError(f"{name} is not installed")
    return str(Path(found).resolve())


def _libraries(program: str) -> list[str]:
    """Returns the shared libraries of a program, including the loader, at the paths where it looks for them."""
    listing = subprocess.run(["ldd", program], capture_output=True, check=True, text=True).stdout
    return re.findall(r"(?:=> |^\s*)(/\S+) \(", listing, re.MULTILINE)


def _three_pipes() -> tuple[list[int], list[int]]:
    """Returns this side's and the other side's ends of stdin, stdout and stderr."""
    stdin_there, stdin = os.pipe()
    stdout, stdout_there = os.pipe()
    stderr, stderr_there = os.pipe()
    return [stdin, stdout, stderr], [stdin_there, stdout_there, stderr_there]


def _built() -> Path:
    """Returns the folder with compiled programs for the inside of phones. It is made once."""
    sources = [_SOURCES / "run_arm.c", _SOURCES / "su.c"]
    library = [f'-DQEMU="{_QEMU}"', f'-DPREFIX="{_PREFIX}"', "-fPIC", "-shared"]
    made_of = [*(source.read_bytes() for source in sources), "\0".join(library).encode()]
    digest = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "autotune" / f"phone-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "su").exists():
            _compile([*library, str(sources[0]), "-o", str(folder / "librun_arm.so")])
            part = folder / "su.part"
            _compile([str(sources[1]), "-o", str(part)])
            part.chmod(0o4755)
            part.rename(folder / "su")
    return folder


def _compile(arguments: list[str]) -> None:
    try:
        subprocess.run(["cc", "-O2", *arguments], check=True, capture_output=True, timeout=60)
    except subprocess.CalledProcessError as error:
        raise ToolchainError(f"cc fails: {error.stderr.decode(errors='replace')[-500:]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"cc does not run: {error}") from error
