"""Builds the phone's root folder, in the private mount namespace of its first process."""

from __future__ import annotations

import os
import socket
import stat
import uuid
from pathlib import Path

from autotune.emulator.inside import kernel_calls as calls
from autotune.emulator.inside.plan import Plan

_SHELL_UID = 2000
_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_TREE = "dev/emulated-kernel"


def build(plan: Plan, fuse: int) -> None:
    """Builds the root folder and makes it this process's root.

    Args:
        plan: Its files.
        fuse: An open `/dev/fuse`; its other side answers for the emulated kernel's files.

    Raises:
        OSError: The system refuses.
    """
    os.umask(0o022)
    calls.mount("", "/", flags=calls.MS_REC | calls.MS_PRIVATE)
    root = Path(plan.root_folder)
    calls.mount("tmpfs", str(root), "tmpfs", calls.MS_NODEV, "mode=755,size=16m")
    for name in ("proc", "sys", "dev", "data", "tmp", "system/bin", "etc", "vendor"):
        (root / name).mkdir(0o755, parents=True)
    for path, (text, mode) in plan.texts.items():
        file = _placed(root, path)
        file.write_text(text)
        file.chmod(mode)
    for path, target in plan.links.items():
        _placed(root, path).symlink_to(target)
    for path, source in plan.binds.items():
        _bind(root, path, source)
    calls.bind(plan.data_folder, str(root / "data"))
    calls.mount("tmpfs", str(root / "tmp"), "tmpfs", 0, "mode=1777,size=16m")
    calls.mount("proc", str(root / "proc"), "proc")
    _devices(root / "dev")
    _boot_id(root)
    _kernel_files(root, fuse, plan)
    socket.sethostname(plan.hostname)
    calls.loopback_up()
    calls.change_root(str(root))
    # As on a phone, commands can write only in /data and /tmp.
    calls.mount("", "/", flags=calls.MS_REMOUNT | calls.MS_RDONLY, options="size=16m")


def prepare_data() -> None:
    """Makes the folders that every phone has in `/data`."""
    for path, mode in (("/data/local", 0o751), ("/data/local/tmp", 0o771)):
        Path(path).mkdir(exist_ok=True)
        Path(path).chmod(mode)
    os.chown("/data/local/tmp", _SHELL_UID, _SHELL_UID)


def _placed(root: Path, path: str) -> Path:
    """Returns the path within the root, and makes its parent folders."""
    placed = root / path.lstrip("/")
    placed.parent.mkdir(parents=True, exist_ok=True)
    return placed


def _bind(root: Path, path: str, source: str, *, read_only: bool = True) -> None:
    target = _placed(root, path)
    if Path(source).is_dir():
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.touch(0o644)
    calls.bind(source, str(target), read_only=read_only)


def _devices(folder: Path) -> None:
    calls.mount("tmpfs", str(folder), "tmpfs", calls.MS_NOSUID, "mode=755,size=64k")
    for name, (major, minor) in _DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (folder / name).chmod(0o666)
    (folder / "pts").mkdir()
    calls.mount("devpts", str(folder / "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    (folder / "ptmx").symlink_to("pts/ptmx")
    (folder / "fd").symlink_to("/proc/self/fd")


def _boot_id(root: Path) -> None:
    """Sets a boot number for this start, as a separate kernel would have."""
    file = root / "dev" / "boot-id"
    file.write_text(f"{uuid.uuid4()}\n")
    calls.bind(str(file), str(root / "proc/sys/kernel/random/boot_id"), read_only=True)
    file.unlink()


def _kernel_files(root: Path, fuse: int, plan: Plan) -> None:
    tree = root / _TREE
    tree.mkdir()
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
    calls.mount("emulated-kernel", str(tree), "fuse", calls.MS_NOSUID | calls.MS_NODEV, options)
    calls.bind(str(tree / "sys"), str(root / "sys"))
    for path in plan.kernel_files:
        target = root / path.lstrip("/")
        # Nothing can be added to /proc.
        if target.exists() or not path.startswith("/proc/"):
            _bind(root, path, str(tree / path.lstrip("/")), read_only=False)
    calls.unmount(str(tree))
    tree.rmdir()
