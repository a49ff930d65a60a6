"""Starts a run's searches from what records know about its kernels, or about similar kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from autotune.compiler.programs import Candidate
from autotune.compiler.run.experience import Experience, Experiences, KnownKernel
from autotune.compiler.run.task_state import TaskState
from autotune.compiler.search import FormulationSearch, Lesson
from autotune.errors import UsageError
from autotune.records import RecordsUse, spread
from autotune.workloads.operators import Kernel

_NEAR = 1.05
"""A schedule within 5 % of the best counts as found."""
_MOST_RECALLED = 32
MOST_TAUGHT = 64
"""Schedules of each kernel and formulation that a cost model of tiles learns from."""
_REPEATED = 2
# A similar kernel tries one schedule per this share of the untuned step's time, and none if its share is
# negligible.
_SHARE_OF_ONE = 0.004
_MOST_ADAPTED = 4
# Number of formulations to try for it, except those that are slower than the best by `_MUCH_SLOWER`.
_FORMULATIONS = 2
_MUCH_SLOWER = 1.5
_NEGLIGIBLE = 0.0005
_FROM_EACH = 2
_VARIANTS = 3

SearchOf = Callable[[Kernel, str], FormulationSearch]
Report = Callable[[int, str], None]


class WarmStart:
    """Seeds the searches of a run.

    - For a known kernel, the best schedules are measured once more. The others become parents and train the cost
      model.
    - For a kernel similar to known ones, their best schedules are adapted to its sizes and measured first.
    - Known formulations need no warm-up: those that were slow wait until the others have had their trials.
    - A cost model of tiles learns from all known kernels that its rule tiles.

    Args:
        experiences: Knowledge from records.
        search_of: Makes a search that shares the run's cost model, for a kernel that is not the run's own.
    """

    def __init__(self, experiences: Experiences, search_of: SearchOf) -> None:
        self._experiences = experiences
        self._search_of = search_of
        self._recalled: dict[tuple[str, str], list[Candidate]] = {}
        self.taught: dict[str, int] = {}
        """Number of schedules of other kernels that each rule's cost model has learnt from."""

    def steps(self, task_states: Sequence[TaskState]) -> int:
        """Returns the number of steps that `begin` reports."""
        return len(self._experiences.known) + 2 * len(task_states)

    def begin(
        self, task_states: Sequence[TaskState], report: Report, interrupted: Callable[[], bool]
    ) -> None:
        """Seeds the searches from the records.

        Args:
            task_states: The run's kernels, with trials of earlier parts of the run.
            report: Called after each step: one per kernel of the records, and two per kernel of the run.
            interrupted: Called between kernels; True ends it early.
        """
        own = {
            (task_state.task.kernel.name, searcher.formulation.name): searcher
            for task_state in task_states
            for searcher in task_state.searchers.searchers
        }
        # All learning and recalling comes before any ranking.
        self._teach(own, report, interrupted)
        lessons = len(self._experiences.known)
        for done, task_state in enumerate(task_states, start=1 + lessons):
            if interrupted():
                return
            for known in self._known(task_state):
                for name in known.formulations:
                    self._recall(known, name, own)
            report(done, task_state.task.kernel.name)
        step = sum(e.searchers.weight for e in task_states if math.isfinite(e.searchers.default_s))
        for done, task_state in enumerate(task_states, start=1 + lessons + len(task_states)):
            experience = self._experiences.of.get(task_state.task.kernel.name)
            if interrupted():
                return
            if experience is not None:
                self._credit(task_state, experience)
                self._seed(
                    task_state, experience, task_state.searchers.weight / step if step else math.inf
                )
            report(done, task_state.task.kernel.name)

    def _known(self, task_state: TaskState) -> Sequence[KnownKernel]:
        experience = self._experiences.of.get(task_state.task.kernel.name)
        return experience.known if experience else ()

    def _recall(
        self, known: KnownKernel, formulation: str, own: Mapping[tuple[str, str], FormulationSearch]
    ) -> None:
        key = (known.kernel.name, formulation)
        if key in self._recalled:
            return
        searcher = own.get(key) or self._separate_searcher(known.kernel, formulation)
        if searcher is None:
            return
        taught = searcher.formulation.rule and key not in own  # It has learnt from its lesson.
        some = spread(known.of(formulation), _MOST_RECALLED)
        self._recalled[key] = searcher.recall(some, learn=not taught)

    def _teach(
        self,
        own: Mapping[tuple[str, str], FormulationSearch],
        report: Report,
        interrupted: Callable[[], bool],
    ) -> None:
        """Trains the cost models of tiles. Knowledge about the run's own kernels is learnt when it is recalled."""
        pupils = {
            searcher.formulation.rule: searcher
            for searcher in own.values()
            if searcher.formulation.rule
        }
        lessons: dict[str, list[Lesson]] = {rule: [] for rule in pupils}
        for done, known in enumerate(self._experiences.known.values(), start=1):
            for name in known.formulations if pupils else ():
                if interrupted():
                    return
                if (known.kernel.name, name) in own:
                    continue
                searcher = self._separate_searcher(known.kernel, name)
                if searcher is not None and searcher.formulation.rule in pupils:
                    lesson = searcher.lesson(spread(known.of(name), MOST_TAUGHT))
                    lessons[searcher.formulation.rule].append(lesson)
            report(done, known.kernel.name)
        for rule, some in lessons.items():
            if count := sum(len(one.seconds) for one in some):
                pupils[rule].teach(some)
                self.taught[rule] = count

    def _separate_searcher(self, kernel: Kernel, formulation: str) -> FormulationSearch | None:
        """Returns a search of a kernel that is not the run's own; None if this version, or the space, has none."""
        try:
            return self._search_of(kernel, formulation)
        except UsageError:
            return None

    def _credit(self, task_state: TaskState, experience: Experience) -> None:
        for searcher in task_state.searchers.searchers:
            name = searcher.formulation.name
            known = experience.known_kernel(name)
            if known is not None and self._recalled.get((known.kernel.name, name)):
                searcher.state.credit = max(experience.trials(name), task_state.searchers.warmup)
                searcher.state.expected = experience.expected(name)

    def _seed(self, task_state: TaskState, experience: Experience, share: float) -> None:
        searchers = {
            searcher.formulation.name: searcher for searcher in task_state.searchers.searchers
        }
        task_state.searchers.expected_s = _expected_s(experience, task_state)
        if experience.equal:
            task_state.searchers.known_trials = sum(
                searcher.state.credit for searcher in searchers.values()
            )
            most = _REPEATED if task_state.task.kernel.is_compute else 1
            (known,) = experience.known
            if known.default_is_best:
                return
            near = [one for one in known.schedules if one.best_s <= _NEAR * known.best_s]
            for one in near[:most]:
                if one.formulation in searchers and one.digest not in task_state.trials:
                    recalled = self._recalled.get((known.kernel.name, one.formulation), [])
                    searchers[one.formulation].repeat(
                        [c for c in recalled if c.digest == one.digest]
                    )
            return
        if share < _NEGLIGIBLE:
            return
        most = int(min(_MOST_ADAPTED, max(1, share / _SHARE_OF_ONE)))
        names = [
            name
            for name in experience.formulations()
            if name in searchers and (experience.expected(name) or math.inf) <= _MUCH_SLOWER
        ][: min(most, _FORMULATIONS)]
        if any(searcher.state.trials for searcher in searchers.values()):
            return  # The run was resumed, and has tried them.
        made = 0
        for number, name in enumerate(names):
            alike = [
                candidate
                for known in experience.known
                if not known.default_is_best
                for candidate in self._recalled.get((known.kernel.name, name), [])[:_FROM_EACH]
            ]
            made += searchers[name].adapt(alike, _VARIANTS, (most + number) // len(names))
        if made:
            return
        if not all(known.default_is_best for known in experience.known):
            for searcher in searchers.values():  # Nothing fits: its search starts like any other.
                searcher.state.credit, searcher.state.expected = 0, None

    def use(self, task_states: Sequence[TaskState]) -> RecordsUse:
        """Returns what use the records were, once the run has ended."""
        equal = similar = saved = 0
        for task_state in task_states:
            experience = self._experiences.of.get(task_state.task.kernel.name)
            if experience is None:
                continue
            equal += experience.equal
            similar += not experience.equal
            saved += _saved(experience, task_state)
        return RecordsUse(equal, similar, len(task_states) - equal - similar, saved)


def _expected_s(experience: Experience, task_state: TaskState) -> float:
    """Returns the seconds expected by records: the best known, or by the nearest kernel's gain over its default."""
    nearest = experience.known[0]
    if experience.equal:
        return nearest.best_s
    before = nearest.default_s
    return math.inf if before is None else nearest.best_s * task_state.searchers.default_s / before


def _saved(experience: Experience, task_state: TaskState) -> int:
    """Returns how many fewer trials than the nearest known kernel it took to be as good; 0 if it never was.

    A similar kernel is as good if its gain over its untuned default is as large.
    """
    nearest = experience.known[0]
    goal = _NEAR * _expected_s(experience, task_state)
    if nearest.default_is_best or not math.isfinite(goal):
        return 0
    outcomes = enumerate((trial.outcome for trial in task_state.trials.values()), start=1)
    now = next((n for n, outcome in outcomes if outcome.seconds <= goal), None)
    before = [one.trials_until(_NEAR * nearest.best_s) for one in nearest.searched if one.curve]
    return min(before) - now if before and now is not None else 0
