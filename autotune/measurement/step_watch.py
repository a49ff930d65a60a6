"""Follows the lines that a workload prints, one at the end of each step."""

from __future__ import annotations

import logging

from autotune.errors import NothingMeasuredError
from autotune.measurement.observation import Observation, Steps, steps
from autotune.measurement.step_run import Protocol, Workload

LOGGER = logging.getLogger("autotune.measurement")
_SILENT_S = 60.0
_NOT_STARTED = (126, 127)
"""Exit codes for a program that cannot be run, and for one that does not exist, as in shells."""


class StepWatch:
    """Decides when a run has enough steps, and explains why a run has none.

    Args:
        workload: The program that prints the lines.
        protocol: Sets how many steps are needed.
    """

    def __init__(self, workload: Workload, protocol: Protocol) -> None:
        self._pattern, self._protocol = workload.step, protocol
        self._stepped = self._warned = False

    def steps(self, observed: Observation) -> Steps | None:
        """Returns the steps after the warm-up; None if there are too few."""
        return steps(observed.lines, self._pattern, warm_up=self._protocol.warm_up)

    def enough(self, observed: Observation) -> bool:
        """Returns whether a run may end. Warns once if a program prints lines and none of them ends a step."""
        if not self._stepped and self._ends(observed):
            self._stepped = True
        if not self._stepped and not self._warned and observed.samples and observed.lines:
            waited_s = observed.samples[-1].time_s - observed.begin_s
            if waited_s > _SILENT_S:
                LOGGER.warning("%s", self._stepless(observed, waited_s))
                self._warned = True
        counted = self.steps(observed)
        if counted is None or len(counted.ends_s) < self._protocol.least_steps:
            return False
        return counted.ends_s[-1] - counted.start_s >= self._protocol.least_s

    def require(self, observed: Observation) -> None:
        """Checks that some run has shown a step. Otherwise further runs would take as long and give nothing.

        Raises:
            NothingMeasuredError: The command cannot be started, or no line of its output ended a step.
        """
        self._stepped = self._stepped or self._ends(observed) > 0
        if not self._stepped and observed.exit_code in _NOT_STARTED:
            raise NothingMeasuredError(f"the command does not run: {self.failure(observed)}")
        if self._stepped or failed(observed):
            return
        raise NothingMeasuredError(
            self._stepless(observed, _length_s(observed)),
            hint="--steps-from is a regular expression that the line at the end of each step matches",
        )

    def failure(self, observed: Observation) -> str:
        """Explains why a run cannot be used: the program failed, or there were too few steps."""
        if failed(observed):
            return observed.complaint
        return (
            f"{self._ends(observed)} lines matched '{self._pattern.pattern}' in "
            f"{_length_s(observed):.0f} s, and {self._protocol.warm_up + 1} are needed at least"
        )

    def _ends(self, observed: Observation) -> int:
        return sum(bool(self._pattern.search(line.text)) for line in observed.lines)

    def _stepless(self, observed: Observation, seconds: float) -> str:
        last = f"the last was '{observed.lines[-1].text}'" if observed.lines else "there was none"
        return (
            f"no line that the program printed matched '{self._pattern.pattern}' in {seconds:.0f} s; "
            f"{last}"
        )


def failed(observed: Observation) -> bool:
    """Returns whether a command ended by itself with an error."""
    return observed.exit_code != 0 and not observed.why


def _length_s(observed: Observation) -> float:
    return (observed.end_s or observed.begin_s) - observed.begin_s
