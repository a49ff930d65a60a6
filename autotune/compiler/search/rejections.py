"""Counts the samples that MetaSchedule's checks reject, from its log."""

from __future__ import annotations

import logging
import re

_CHECK = re.compile(
    r"(?:Postproc #\d+ \[(?:[\w.]+\.)?(\w+)[^\]]*\]|(Trace replay) failures): (\d+) fail"
)
_SAMPLED = re.compile(r"Sampled (\d+) candidate")


class RejectionCounter(logging.Handler):
    """Sums MetaSchedule's counts of rejected samples, by check.

    The counts exist only in its log. Each summary is cumulative over one batch of samples. A batch is repeated
    until enough samples are valid, and logged each time, so only the last of successive summaries of a kind counts.
    """

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.rejected: dict[str, int] = {}
        self._pending: dict[str, int] = {}
        self._accepted = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if sampled := _SAMPLED.search(text):
            self._accepted += int(sampled[1])
        found = _CHECK.findall(text)
        if not found:
            return
        counts = {check or "TraceReplay": int(count) for check, replay, count in found}
        if "Sample-Init-Population" in text:
            self._pending = counts
            return
        self._add(counts)

    def _add(self, counts: dict[str, int]) -> None:
        for check, count in counts.items():
            if count:
                self.rejected[check] = self.rejected.get(check, 0) + count

    def take(self) -> tuple[int, dict[str, int]]:
        """Returns the number of fresh samples accepted since the last call, and of samples rejected by check."""
        self._add(self._pending)
        taken = self._accepted, self.rejected
        self._accepted, self.rejected, self._pending = 0, {}, {}
        return taken
