"""The findings of a check of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotune.reading import Unreadable, parse_json


@dataclass(frozen=True)
class FileFinding:
    """A file that differs from the manifest.

    Attributes:
        file: Its path in the export; a folder ends with a slash.
        status: `changed`, `missing`, `unlisted`, `unreadable`, `not a file` or `not a folder` (such as a link).
    """

    file: str
    status: str


@dataclass(frozen=True)
class ResultFinding:
    """The result of a kernel that was run, or of a variant that the device cannot run.

    Attributes:
        variant: The variant.
        kernel: The kernel; None for the whole variant.
        role: Its role.
        status: `ok`, `wrong`, `skipped` (the device lacks something) or `not checked`.
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
    """The result of a check.

    Attributes:
        path: The export.
        kind: Its format.
        device: The device that ran its kernels.
        checked_files: Number of files that were compared.
        files: Files that differ from the manifest.
        results: Kernels that ran. If a file differs, nothing is run.
        kernels: Number of kernels in the export.
        specs: Their shapes, in the form that `--op` takes, by name.
        model, batch: The model and the batch size, if the export names one.
    """

    path: Path
    kind: str
    device: str
    checked_files: int
    files: tuple[FileFinding, ...]
    results: tuple[ResultFinding, ...]
    kernels: int = 0
    specs: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    batch: int | None = None

    @property
    def checked_kernels(self) -> int:
        """Number of kernels that ran in some variant, and were compared."""
        return len({one.kernel for one in self.results if one.status in ("ok", "wrong")} - {None})

    @property
    def ok(self) -> bool:
        """Whether no file differs, every result is correct or skipped, and at least one is correct."""
        statuses = {one.status for one in self.results}
        return not self.files and "ok" in statuses and statuses <= {"ok", "skipped"}

    def to_json(self) -> dict[str, Any]:
        """Returns plain data; see docs/export.md."""
        return {
            "path": str(self.path),
            "format": self.kind,
            "model": self.model,
            "batch": self.batch,
            "device": self.device,
            "ok": self.ok,
            "checked_files": self.checked_files,
            "kernels": self.kernels,
            "checked_kernels": self.checked_kernels,
            "files": [asdict(one) for one in self.files],
            "results": [asdict(one) for one in self.results],
        }


def results_of(stdout: str, stderr: str, exit_code: int) -> tuple[ResultFinding, ...]:
    """Returns the findings of an export's example.

    Args:
        stdout: Its output: one JSON object per line.
        stderr: Its error output.
        exit_code: Its exit code; below 0 or above 128 if a signal ended it.
    """
    findings = []
    for line in stdout.splitlines():
        try:
            findings.append(ResultFinding(**parse_json(line)))
        except (Unreadable, TypeError):
            continue
    if not findings or (exit_code != 0 and {one.status for one in findings} <= {"ok", "skipped"}):
        # It died, so its output is incomplete.
        said = (stderr.strip().splitlines() or ["it said nothing"])[-1]
        reason = f"the example ended with exit code {exit_code}: {said}"
        findings.append(ResultFinding("", None, None, "wrong", None, reason))
    return tuple(findings)
