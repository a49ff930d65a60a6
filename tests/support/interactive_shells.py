"""An interactive shell on a terminal, and its command line after given key presses."""

import os
import pty
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PATIENCE_S = 60.0
_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "-N", "-i"],
}
_SAVE = {
    "bash": """bind -x '"\\C-g": printf "%s" "$READLINE_LINE" > saving; mv saving line'""",
    "zsh": "save() { print -rn -- $BUFFER > saving; mv saving line }; zle -N save; bindkey '^G' save",
    "fish": "bind \\cg 'commandline > saving; mv saving line'",
}
"""Makes Ctrl-G save the line in a file."""
_ASKED, _ANSWER = b"\x1b[c", b"\x1b[?62c"
"""What fish asks its terminal before it starts, and an answer."""


class Terminal:
    """An interactive shell in a folder."""

    def __init__(self, terminal: int, folder: Path) -> None:
        self._terminal, self._folder = terminal, folder
        self.shown = b""

    def line(self, keys: str) -> str:
        """Types keys on an empty line, and returns the line. A tab completes."""
        saved = self._folder / "line"
        saved.unlink(missing_ok=True)
        os.write(self._terminal, f"{keys}\x07".encode())
        self._wait(saved.exists)
        os.write(self._terminal, b"\x15")
        return saved.read_text().removesuffix("\n")

    def run(self, *commands: str) -> None:
        """Runs commands, and waits for their end."""
        done = self._folder / "done"
        os.write(self._terminal, "".join(f"{one}\n" for one in (*commands, ": > done")).encode())
        self._wait(done.exists)
        done.unlink()

    def _wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < end, self.shown.decode(errors="replace")
            if select.select([self._terminal], [], [], 0.05)[0]:
                text = os.read(self._terminal, 1 << 16)
                self.shown += text
                if _ASKED in text:
                    os.write(self._terminal, _ANSWER)


@contextmanager
def interactive(shell: str, folder: Path, commands: Sequence[str]) -> Iterator[Terminal]:
    """Starts `bash`, `zsh` or `fish` with a terminal, without the user's settings, and runs commands in it.

    Programs in `bin` of the folder come first.
    """
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "HOME": str(folder),
        "TERM": "xterm",
        "COLUMNS": "80",
    }
    child, terminal = pty.fork()
    if child == 0:
        with suppress(OSError):
            os.chdir(folder)
            os.execvpe(shell, _START[shell], environment)
        os._exit(127)
    try:
        started = Terminal(terminal, folder)
        started.run(*commands, _SAVE[shell])
        yield started
    finally:
        os.close(terminal)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
