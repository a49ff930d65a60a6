"""The few commands that the project runs on a device, implemented for an emulated one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.devices import Completed
from autotune.emulator.device.view import FileView
from autotune.emulator.kernel import MemoryFiles, thermal
from autotune.emulator.model import Profile

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_ANDROID_SHELL_UID = 2000
_FIRST_UID = 1000
_EXECUTABLE = 0o111
_NEW_FILE = 0o644


@dataclass(frozen=True)
class Shell:
    """The environment of a command.

    Attributes:
        profile: The device.
        view: All files, as the user sees them.
        files: Pushed files.
        root: Whether the user is root.
    """

    profile: Profile
    view: FileView
    files: MemoryFiles
    root: bool


@dataclass
class _Output:
    code: int = 0
    out: bytes = b""
    err: str = ""

    def complain(self, program: str, error: OSError) -> None:
        self.code = 1
        self.err += f"{program}: {error.filename}: {error.strerror}\n"


def run_command(shell: Shell, argv: Sequence[str]) -> Completed:
    """Runs a command. A missing program ends with 127, as in a shell."""
    name = argv[0] if argv else ""
    done = _Output()
    command = _COMMANDS.get(name.rpartition("/")[2] if name.startswith(_PROGRAMS) else name)
    if command is not None and (name not in _ANDROID_S or shell.profile.android is not None):
        command(shell, list(argv[1:]), done)
    elif "/" in name and shell.files.kind(name) == "file":
        executable = shell.files.mode(name) & _EXECUTABLE
        done.code = NOT_FOUND if executable else NOT_EXECUTABLE
        reason = "this program is not emulated" if executable else os.strerror(13)
        done.err = f"sh: {name}: {reason}\n"
    else:
        done.code = NOT_FOUND
        done.err = f"sh: {name}: inaccessible or not found\n"
    return Completed(tuple(argv), done.code, done.out, done.err.encode())


def _uname(shell: Shell, words: list[str], done: _Output) -> None:
    known = {"-s": "Linux", "-r": shell.profile.kernel, "-m": shell.profile.machine}
    wanted = list(known) if "-a" in words else (words or ["-s"])
    if not set(wanted) <= set(known):
        done.code, done.err = 1, f"uname: Unknown option '{words[0]}'\n"
        return
    done.out = (" ".join(known[w] for w in known if w in wanted) + "\n").encode()


def _getprop(shell: Shell, words: list[str], done: _Output) -> None:
    found = properties(shell.profile)
    if words:
        done.out = f"{found.get(words[0], '')}\n".encode()
    else:
        done.out = "".join(f"[{k}]: [{v}]\n" for k, v in sorted(found.items())).encode()


def properties(profile: Profile) -> dict[str, str]:
    """Returns Android's properties of a device; empty for other systems."""
    if profile.android is None:
        return {}
    return {
        "ro.product.manufacturer": profile.maker,
        "ro.product.model": profile.title,
        "ro.product.cpu.abi": profile.abi,
        "ro.board.platform": profile.android.board,
        "ro.soc.model": profile.soc,
        "ro.build.version.release": profile.android.release,
        "ro.build.version.sdk": str(profile.android.sdk),
        "ro.autotune.emulated": profile.name,
        "sys.boot_completed": "1",
    }


def _id(shell: Shell, words: list[str], done: _Output) -> None:
    user = _ANDROID_SHELL_UID if shell.profile.android else _FIRST_UID
    uid = 0 if shell.root else user
    done.out = f"{uid}\n".encode() if words == ["-u"] else f"uid={uid} gid={uid}\n".encode()


def _cat(shell: Shell, words: list[str], done: _Output) -> None:
    for path in words:
        try:
            done.out += shell.view.read(path)
        except OSError as error:
            done.complain("cat", error)


def _rm(shell: Shell, words: list[str], done: _Output) -> None:
    flags = "".join(word[1:] for word in words if word.startswith("-"))
    for path in (word for word in words if not word.startswith("-")):
        try:
            kind = shell.view.kind(path)
            if kind is None and "f" in flags:
                continue
            if kind is None:
                raise OSError(2, os.strerror(2), path)
            shell.view.may_change(path)
            if kind == "folder" and "r" not in flags.lower():
                raise OSError(21, os.strerror(21), path)
            shell.files.remove(path)
        except OSError as error:
            done.complain("rm", error)


def _mkdir(shell: Shell, words: list[str], done: _Output) -> None:
    for path in (word for word in words if not word.startswith("-")):
        try:
            if shell.view.kind(path) == "folder" and "-p" in words:
                continue
            if shell.view.kind(path) is not None:
                raise OSError(17, os.strerror(17), path)
            shell.view.may_change(path)
            shell.files.make_folder(path)
        except OSError as error:
            done.complain("mkdir", error)


def _chmod(shell: Shell, words: list[str], done: _Output) -> None:
    mode, *paths = words or [""]
    for path in paths:
        try:
            shell.view.may_change(path)
            now = shell.view.mode(path)
            added = {"+x": 0o111, "+r": 0o444, "+w": 0o200, "a+x": 0o111, "u+x": 0o100}.get(mode)
            shell.files.chmod(path, now | added if added else int(mode, 8))
        except OSError as error:
            done.complain("chmod", error)
        except ValueError:
            done.code, done.err = 1, f"chmod: bad mode '{mode}'\n"


def _mv(shell: Shell, words: list[str], done: _Output) -> None:
    paths = [word for word in words if not word.startswith("-")]
    if len(paths) != 2:
        done.code, done.err = 1, "mv: needs two paths\n"
        return
    try:
        for path in paths:
            shell.view.may_change(path)
        shell.files.move(*paths)
    except OSError as error:
        done.complain("mv", error)


def _true(shell: Shell, words: list[str], done: _Output) -> None:
    """Does nothing."""


def _false(shell: Shell, words: list[str], done: _Output) -> None:
    done.code = 1


def _echo(shell: Shell, words: list[str], done: _Output) -> None:
    done.out = (" ".join(words) + "\n").encode()


def _tail(shell: Shell, words: list[str], done: _Output) -> None:
    """Implements `tail -c +N FILE` and `tail -c N FILE`."""
    if len(words) != 3 or words[0] != "-c":
        done.code, done.err = 1, "tail: only -c N FILE is emulated\n"
        return
    try:
        data = shell.view.read(words[2])
    except OSError as error:
        done.complain("tail", error)
        return
    count = int(words[1])
    done.out = data[count - 1 :] if words[1].startswith("+") else data[-count:]


def _dumpsys(shell: Shell, words: list[str], done: _Output) -> None:
    try:
        if words != ["thermalservice"]:
            raise FileNotFoundError
        done.out = shell.view.read(thermal.PATH)
    except OSError:
        done.err = f"Can't find service: {' '.join(words)}\n"


def _touch(shell: Shell, words: list[str], done: _Output) -> None:
    for path in words:
        try:
            if shell.view.kind(path) is None:
                shell.view.may_change(path)
                shell.files.store(path, b"", _NEW_FILE)
        except OSError as error:
            done.complain("touch", error)


_ANDROID_S = ("getprop", thermal.PROGRAM)
_PROGRAMS = ("/bin/", "/usr/bin/", "/system/bin/")
_COMMANDS: dict[str, Callable[[Shell, list[str], _Output], None]] = {
    "uname": _uname,
    "getprop": _getprop,
    "id": _id,
    "cat": _cat,
    "rm": _rm,
    "mkdir": _mkdir,
    "chmod": _chmod,
    "mv": _mv,
    "true": _true,
    "false": _false,
    "echo": _echo,
    "touch": _touch,
    "tail": _tail,
    thermal.PROGRAM: _dumpsys,
}
