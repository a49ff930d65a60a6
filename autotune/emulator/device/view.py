"""All files of an emulated device, both the kernel's and the pushed ones, as one user sees them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from autotune.emulator.kernel import KernelTree, MemoryFiles, refused


class FileView:
    """A `tree.Tree` of both, for one user.

    Args:
        kernel: The kernel's files, as this user sees them.
        files: Pushed files.
        owned: Folders below which this user may make files; None for root, who may do so everywhere.
    """

    def __init__(
        self, kernel: KernelTree, files: MemoryFiles, owned: Sequence[str] | None = None
    ) -> None:
        self._kernel, self._files, self._owned = kernel, files, owned

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """See `Tree.kind`."""
        return self._kernel.kind(path) or self._files.kind(path)

    def names(self, path: str) -> list[str]:
        """See `Tree.names`."""
        trees = [tree for tree in (self._kernel, self._files) if tree.kind(path) is not None]
        if not trees:
            raise refused(errno.ENOENT, path)
        return sorted({name for tree in trees for name in tree.names(path)})

    def mode(self, path: str) -> int:
        """See `Tree.mode`."""
        return self._kernel.mode(path) if self._kernel.kind(path) else self._files.mode(path)

    def read(self, path: str) -> bytes:
        """See `Tree.read`."""
        return self._kernel.read(path) if self._kernel.kind(path) else self._files.read(path)

    def reader(self, path: str) -> Callable[[], str]:
        """Returns a function that reads a file as `read` does, for frequent reads."""
        return self._kernel.reader(path) or (lambda: self.read(path).decode())

    def write(self, path: str, data: bytes) -> None:
        """See `Tree.write`."""
        if self._kernel.kind(path):
            self._kernel.write(path, data)
        else:
            self._files.mode(path)  # It must exist, for any user.
            self.may_change(path)
            self._files.write(path, data)

    def may_change(self, path: str) -> None:
        """Raises OSError with EACCES if this user, or any user, may not make or remove files there."""
        owned = self._owned is None or any(path.startswith(f"{folder}/") for folder in self._owned)
        if not owned or self._kernel.kind(path) or path.startswith(("/sys/", "/proc/")):
            raise refused(errno.EACCES, path)

    def expand(self, patterns: Iterable[str]) -> list[str]:
        """Returns the paths that match patterns with `*`, `?` and `[...]`, as a shell expands them, each once."""
        found: dict[str, None] = {}
        for pattern in patterns:
            found.update(dict.fromkeys(self._expand(pattern)))
        return list(found)

    def _expand(self, pattern: str) -> list[str]:
        at = [""]
        for part in pattern.strip("/").split("/"):
            if not any(c in part for c in "*?["):
                at = [f"{folder}/{part}" for folder in at]
                continue
            at = [
                f"{folder}/{name}"
                for folder in at
                if self.kind(folder or "/") == "folder"
                for name in self.names(folder or "/")
                if fnmatchcase(name, part) and (name[0] != "." or part[0] == ".")
            ]
        return [path for path in at if self.kind(path) is not None]
