"""The trial budget goes where most time of the step can be saved."""

import math
from types import SimpleNamespace
from typing import Any, cast

from autotune.compiler.run.budget import TaskSearches, next_allocation
from autotune.compiler.search.formulation_search import SearchState


def searcher(
    trials: int = 0, best_s: float = math.inf, given: int = 0, outlook: float = 1.0, **fields: Any
) -> Any:
    state = SearchState(trials=trials, best_s=best_s, **fields)
    return SimpleNamespace(state=state, given=given, outlook=outlook)


def task(count: int, default_s: float, *searchers: Any, warmup: int = 2) -> TaskSearches:
    return TaskSearches(count, default_s, warmup, cast("list[Any]", list(searchers)))


def test_nothing_is_asked_for_without_budget_or_lanes() -> None:
    assert next_allocation([task(1, 1.0, searcher())], 0, 8) is None
    assert next_allocation([], 10, 8) is None
    assert next_allocation([task(1, 1.0, searcher(exhausted=True))], 10, 8) is None


def test_warmup_starts_with_the_most_expensive_task_and_reaches_every_lane() -> None:
    tasks = [
        task(1, 1.0, searcher(), searcher()),
        task(10, 1.0, searcher()),
        task(1, 0.5, searcher()),
    ]
    visited = []
    for _ in range(40):
        allocation = next_allocation(tasks, 100, 8)
        assert allocation is not None
        visited.append(allocation.task)
        allocation.searcher.state.trials += allocation.trials
        allocation.searcher.state.best_s = 0.1
    assert visited[:3] == [1, 0, 2]
    assert all(one.state.trials >= 2 for each in tasks for one in each.searchers)


def test_a_short_budget_gives_every_kernel_one_trial_first() -> None:
    """Without a trial a kernel stays a plain loop nest, which may take fifty times as long."""
    tasks = [task(1, float(cost), searcher(), warmup=4) for cost in range(1, 6)]
    budget, visited = 7, []
    while allocation := next_allocation(tasks, budget, 8):
        visited.append(allocation.task)
        allocation.searcher.state.trials += allocation.trials
        allocation.searcher.state.best_s = 0.01
        budget -= allocation.trials
    assert visited[:5] == [4, 3, 2, 1, 0]
    assert all(one.trials for one in tasks)


def test_a_short_budget_goes_on_with_the_costliest_kernels() -> None:
    """Warm-ups of a hundred kernels that take a thousandth of the step each would leave nothing to the others."""
    small = [task(1, 0.1, searcher(), searcher(), warmup=4) for _ in range(100)]
    tasks, budget = [task(10, 4.0, searcher(), searcher(), warmup=4), *small], 200
    while allocation := next_allocation(tasks, budget, 8):
        allocation.searcher.state.trials += allocation.trials
        allocation.searcher.state.best_s = 0.001 if allocation.task else 0.1
        budget -= allocation.trials
    assert all(one.trials for one in tasks)
    assert tasks[0].trials > 80


def test_a_round_ends_where_another_task_promises_more() -> None:
    tasks = [task(1, 1.0, searcher(10, 0.6)), task(1, 1.0, searcher(10, 0.5))]
    allocation = next_allocation(tasks, 100, 16)
    assert allocation is not None
    assert (allocation.task, allocation.trials) == (0, 2)
    tasks[1].searchers[0].state.best_s = 0.1
    allocation = next_allocation(tasks, 100, 16)
    assert allocation is not None
    assert (allocation.task, allocation.trials) == (0, 16)


def test_what_others_found_comes_first_but_not_before_costlier_tasks() -> None:
    cheap, dear = task(1, 0.3, searcher(), searcher(given=3)), task(1, 1.0, searcher())
    turns = []
    while len(turns) < 4 and (allocation := next_allocation([cheap, dear], 100, 8)):
        turns.append((allocation.task, allocation.trials))
        allocation.searcher.state.trials += allocation.trials
        allocation.searcher.given = 0
    assert turns[:2] == [(1, 2), (0, 3)]


def test_what_is_known_of_the_very_kernel_comes_before_the_warmup_of_costlier_tasks() -> None:
    cheap, dear = task(1, 0.1, searcher(), searcher(given=1)), task(1, 1.0, searcher(), searcher())
    cheap.known_trials = 40
    allocation = next_allocation([dear, cheap], 100, 8)
    assert allocation is not None
    assert (allocation.task, allocation.trials) == (1, 1)


def test_the_budget_is_never_exceeded() -> None:
    allocation = next_allocation([task(1, 1.0, searcher())], 1, 8)
    assert allocation is not None
    assert allocation.trials == 1


def test_after_the_warmup_the_costliest_task_goes_on() -> None:
    cheap, dear = task(1, 1.0, searcher(8, 0.001)), task(4, 1.0, searcher(8, 0.5))
    allocation = next_allocation([cheap, dear], 50, 8)
    assert allocation is not None
    assert (allocation.task, allocation.trials) == (1, 8)


def test_a_task_that_keeps_improving_is_preferred_to_one_that_has_settled() -> None:
    settled = task(1, 1.0, searcher(200, 0.2))
    improving = task(1, 1.0, searcher(200, 0.2, recent_gain_s=0.01))
    allocation = next_allocation([settled, improving], 50, 8)
    assert allocation is not None
    assert allocation.task == 1


def test_what_a_slower_formulation_gained_once_does_not_hold_the_budget() -> None:
    fast, slow = searcher(40, 0.1), searcher(16, 2.0, recent_gain_s=0.5)
    tasks, given = [task(1, 1.0, fast, slow), task(1, 1.0, searcher(40, 0.1))], [0, 0]
    for _ in range(20):
        allocation = next_allocation(tasks, 1000, 8)
        assert allocation is not None
        allocation.searcher.state.trials += allocation.trials
        allocation.searcher.state.recent_gain_s = 0.0
        given[allocation.task] += allocation.trials
    assert given[1] > 0.4 * sum(given)


def test_the_faster_formulation_gets_more_and_the_slower_is_not_forgotten() -> None:
    fast, slow = searcher(4, 0.1), searcher(4, 0.4)
    tasks = [task(1, 1.0, fast, slow)]
    given = {id(fast): 0, id(slow): 0}
    for _ in range(40):
        allocation = next_allocation(tasks, 1000, 8)
        assert allocation is not None
        allocation.searcher.state.trials += allocation.trials
        given[id(allocation.searcher)] += allocation.trials
    assert given[id(fast)] > 5 * given[id(slow)]


def test_a_lane_that_had_few_trials_is_tried_again_before_it_is_given_up() -> None:
    lucky, late = searcher(16, 0.5), searcher(16, 0.7)
    tasks = [task(1, 1.0, lucky, late)]
    turns = []
    for _ in range(4):
        allocation = next_allocation(tasks, 1000, 16)
        assert allocation is not None
        allocation.searcher.state.trials += allocation.trials
        turns.append(allocation.searcher)
    assert turns[0] is lucky
    assert late in turns


def test_a_lane_with_a_better_outlook_goes_on_though_it_is_slower_as_yet() -> None:
    lucky, late = searcher(16, 1.0), searcher(16, 1.5, outlook=0.6)
    allocation = next_allocation([task(1, 1.0, lucky, late)], 1000, 16)
    assert allocation is not None
    assert allocation.searcher is late
    late.outlook = 0.8
    allocation = next_allocation([task(1, 1.0, lucky, late)], 1000, 16)
    assert allocation is not None
    assert allocation.searcher is lucky


def test_an_exhausted_lane_hands_its_turn_on() -> None:
    done, left = searcher(4, 0.1, exhausted=True), searcher(4, 0.4)
    allocation = next_allocation([task(1, 1.0, done, left)], 10, 8)
    assert allocation is not None
    assert allocation.searcher is left


def test_a_task_without_any_valid_time_does_not_eat_the_budget() -> None:
    hopeless, good = task(100, math.inf, searcher(2)), task(1, 1.0, searcher(2, 0.5))
    tasks, given = [hopeless, good], [0, 0]
    for _ in range(30):
        allocation = next_allocation(tasks, 1000, 8)
        assert allocation is not None
        allocation.searcher.state.trials += allocation.trials
        given[allocation.task] += allocation.trials
    assert 0 < given[0] < 20 < given[1]


def test_a_task_whose_default_failed_is_searched_first() -> None:
    tasks = [task(100, 1.0, searcher(2, 0.9)), task(1, math.inf, searcher(2, math.inf))]
    allocation = next_allocation(tasks, 10, 8)
    assert allocation is not None
    assert allocation.task == 1
