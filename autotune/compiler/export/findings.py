"""What a check of an export finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.reading import Unreadable, parse_json


@dataclass(frozen=True)
class FileFinding:
    """A file that is not as the manifest says.

    Attributes:
        file: Its path in the export; with a slash at its end a folder.
        status: `changed`, `missing`, `unlisted`, `unreadable`, `not a file` or `not a folder` (such as a link).
    """

    file: str
    status: str


@dataclass(frozen=True)
class ResultFinding:
    """A kernel that was run, or a variant that the device cannot run.

    Attributes:
        variant: The variant.
        kernel: The kernel; None where the whole variant is meant.
        role: Its role.
        status: `ok`, `wrong`, `skipped` where the device lacks something, or `not checked`.
        max_rel_error: Largest relative error; None without a result.
        reason: Why it is not `ok`.
    """

    variant: str
    kernel: str | None
    role: str | None
    status: str
    max_rel_error: float | None
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        path: The export.
        kind: Its format.
        device: Where its kernels ran.
        checked_files: Files that were compared.
        files: Those that are not as they were.
        results: Kernels that ran; none where a file is not as it was: nothing is run then.
        kernels: How many kernels the export has.
    """

    path: Path
    kind: str
    device: str
    checked_files: int
    files: tuple[FileFinding, ...]
    results: tuple[ResultFinding, ...]
    kernels: int = 0

    @property
    def checked_kernels(self) -> int:
        """How many kernels ran on some variant, and were compared."""
        return len({one.kernel for one in self.results if one.status in ("ok", "wrong")} - {None})

    @property
    def ok(self) -> bool:
        """Whether every file is right, every result is, and there is at least one."""
        statuses = {one.status for one in self.results}
        return not self.files and "ok" in statuses and statuses <= {"ok", "skipped"}

    def to_json(self) -> dict[str, Any]:
        """Plain data; docs/export.md describes it."""
        return {
            "path": str(self.path),
            "format": self.kind,
            "device": self.device,
            "ok": self.ok,
            "checked_files": self.checked_files,
            "kernels": self.kernels,
            "checked_kernels": self.checked_kernels,
            "files": [asdict(one) for one in self.files],
            "results": [asdict(one) for one in self.results],
        }


def results_of(stdout: str, stderr: str, exit_code: int) -> tuple[ResultFinding, ...]:
    """What an export's example has found.

    Args:
        stdout: What it printed: a JSON object a line.
        stderr: What it complained of.
        exit_code: Its exit code; below 0 or above 128 where a signal ended it.
    """
    findings = []
    for line in stdout.splitlines():
        try:
            findings.append(ResultFinding(**parse_json(line)))
        except (Unreadable, TypeError):
            continue
    if not findings or (exit_code != 0 and {one.status for one in findings} <= {"ok", "skipped"}):
        # It died: what it had printed is not all.
        said = (stderr.strip().splitlines() or ["it said nothing"])[-1]
        reason = f"the example ended with exit code {exit_code}: {said}"
        findings.append(ResultFinding("", None, None, "wrong", None, reason))
    return tuple(findings)
