"""Resumes a run: its trials are replayed from their schedules, and none is measured twice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.compiler.programs import DEFAULT, Candidate
from autotune.compiler.run.task_state import TaskState, Trial
from autotune.compiler.search import FormulationSearch
from autotune.errors import RecordError
from autotune.measurement import Outcome
from autotune.records import Run

LOGGER = logging.getLogger("autotune.run")


@dataclass(frozen=True)
class Replayed:
    """The earlier trials of one search."""

    searcher: FormulationSearch
    candidates: list[Candidate]
    outcomes: list[Outcome]


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as fields of an event."""
    fields: dict[str, Any] = {
        "status": outcome.status,
        "samples_s": list(outcome.samples),
        "message": outcome.message,
        "max_rel_error": outcome.max_rel_error,
    }
    if outcome.device:
        fields["serial"] = outcome.device
    if outcome.conditions:
        fields["conditions"] = [seen.to_json() for seen in outcome.conditions]
    if outcome.rejected:
        fields["rejected"] = [outcome_fields(other) for other in outcome.rejected]
    return fields


def restore(task_states: Sequence[TaskState], run: Run) -> tuple[list[Replayed], float]:
    """Restores the tasks' earlier trials, and trains the searches and the cost model with them.

    `TuneRequest.of_run` has checked that the run's events are of its tasks.

    Returns:
        The replayed trials by search, and the seconds that the earlier parts of the run took.

    Raises:
        RecordError: An event does not belong to the run's request.
    """
    by_name = {task_state.task.kernel.name: task_state for task_state in task_states}
    searchers: dict[str, Replayed] = {}
    left_out: list[str] = []
    epoch = 0
    for event in run.events:
        if event["event"] == "drift":
            epoch += 1
        elif event["event"] == DEFAULT:
            outcome = _outcome(event, run.path)
            if not outcome.of_device:  # Otherwise it is measured again.
                by_name[event["task"]].note_default(outcome)
        elif event["event"] == "trial" and event["status"] != "killed":  # Those are tried again.
            task_state = by_name[event["task"]]
            searcher = _searcher(task_state, event, run.path)
            candidate, outcome = _candidate(searcher, event, run.path), _outcome(event, run.path)
            if candidate is None:
                left_out.append(str(event.get("digest")))
                continue
            if candidate.digest in task_state.trials:
                continue
            task_state.trials[candidate.digest] = Trial(candidate, searcher, outcome, epoch)
            replayed = searchers.setdefault(searcher.name, Replayed(searcher, [], []))
            replayed.candidates.append(candidate)
            replayed.outcomes.append(outcome)
    _tell_left_out(left_out, run.path, whole=not searchers)
    for replayed in searchers.values():
        replayed.searcher.observe(list(zip(replayed.candidates, replayed.outcomes, strict=True)))
    return list(searchers.values()), _working_seconds(run)


def _tell_left_out(digests: Sequence[str], path: Path, *, whole: bool) -> None:
    """Warns of trials whose schedules make other programs than were measured; refuses a run that has only such."""
    if not digests:
        return
    message = f"{path}: the schedule of trial {digests[0]} makes another program than was measured"
    if whole:
        raise RecordError(message, hint="another version of autotune made the run: begin a new one")
    LOGGER.warning("%s: %d trials are left out", message, len(digests))


def _working_seconds(run: Run) -> float:
    """Returns the total seconds from the start of each earlier part of the run to its last event."""
    total, began, last = 0.0, 0.0, 0.0
    for event in run.events:
        if event["event"] == "started":
            total += last - began
            began = event["time"]
        last = event["time"]
    return total + last - began


def _candidate(searcher: FormulationSearch, event: dict[str, Any], path: Path) -> Candidate | None:
    try:
        candidate = searcher.replay(event["trace"])
    except RecordError as error:
        raise RecordError(
            f"{path}: trial {event.get('digest')}: {error.message}", hint=error.hint
        ) from None
    except Exception as error:  # TVM raises its parser's first error.
        reason = str(error).strip().splitlines()[-1]
        raise RecordError(
            f"{path}: the schedule of trial {event.get('digest')} is damaged: {reason}",
            hint="delete that line of events.jsonl to continue without the record",
        ) from error
    if candidate.digest != event.get("digest"):
        return None
    return candidate


def _searcher(task_state: TaskState, event: dict[str, Any], path: Path) -> FormulationSearch:
    for searcher in task_state.searchers.searchers:
        if searcher.formulation.name == event.get("formulation"):
            return searcher
    raise RecordError(f"{path}: a record of an unknown formulation {event.get('formulation')!r}")


def _outcome(event: dict[str, Any], path: Path) -> Outcome:
    try:
        return Outcome(
            event["status"], tuple(event["samples_s"]), event["message"], event["max_rel_error"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a record of {event.get('task')} is damaged: {error}") from error
