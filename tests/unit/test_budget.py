"""The trial budget goes where most time of the step can be saved."""

import math
from types import SimpleNamespace
from typing import Any, cast

from autotune.compiler.run.budget import TaskLanes, next_turn
from autotune.compiler.search.lane import LaneState


def lane(
    trials: int = 0, best_s: float = math.inf, given: int = 0, outlook: float = 1.0, **fields: Any
) -> Any:
    state = LaneState(trials=trials, best_s=best_s, **fields)
    return SimpleNamespace(state=state, given=given, outlook=outlook)


def task(count: int, default_s: float, *lanes: Any, warmup: int = 2) -> TaskLanes:
    return TaskLanes(count, default_s, warmup, cast("list[Any]", list(lanes)))


def test_nothing_is_asked_for_without_budget_or_lanes() -> None:
    assert next_turn([task(1, 1.0, lane())], 0, 8) is None
    assert next_turn([], 10, 8) is None
    assert next_turn([task(1, 1.0, lane(exhausted=True))], 10, 8) is None


def test_warmup_starts_with_the_most_expensive_task_and_reaches_every_lane() -> None:
    tasks = [task(1, 1.0, lane(), lane()), task(10, 1.0, lane()), task(1, 0.5, lane())]
    visited = []
    while (turn := next_turn(tasks, 100, 8)) and turn.lane.state.trials < 2:
        assert turn.trials == 2
        visited.append(turn.task)
        turn.lane.state.trials += turn.trials
        turn.lane.state.best_s = 0.1
    assert visited[0] == 1
    assert sorted(visited) == [0, 0, 1, 2]


def test_what_others_found_comes_first_but_not_before_costlier_tasks() -> None:
    cheap, dear = task(1, 0.1, lane(), lane(given=3)), task(1, 1.0, lane())
    turns = []
    while len(turns) < 4 and (turn := next_turn([cheap, dear], 100, 8)):
        turns.append((turn.task, turn.trials))
        turn.lane.state.trials += turn.trials
        turn.lane.given = 0
    assert turns[:3] == [(1, 2), (0, 3), (0, 2)]


def test_what_is_known_of_the_very_kernel_comes_before_the_warmup_of_costlier_tasks() -> None:
    cheap, dear = task(1, 0.1, lane(), lane(given=1)), task(1, 1.0, lane(), lane())
    cheap.known_trials = 40
    turn = next_turn([dear, cheap], 100, 8)
    assert turn is not None
    assert (turn.task, turn.trials) == (1, 1)


def test_the_budget_is_never_exceeded() -> None:
    turn = next_turn([task(1, 1.0, lane())], 1, 8)
    assert turn is not None
    assert turn.trials == 1


def test_after_the_warmup_the_costliest_task_goes_on() -> None:
    cheap, dear = task(1, 1.0, lane(8, 0.001)), task(4, 1.0, lane(8, 0.5))
    turn = next_turn([cheap, dear], 50, 8)
    assert turn is not None
    assert (turn.task, turn.trials) == (1, 8)


def test_a_task_that_keeps_improving_is_preferred_to_one_that_has_settled() -> None:
    settled = task(1, 1.0, lane(200, 0.2))
    improving = task(1, 1.0, lane(200, 0.2, recent_gain_s=0.01))
    turn = next_turn([settled, improving], 50, 8)
    assert turn is not None
    assert turn.task == 1


def test_what_a_slower_formulation_gained_once_does_not_hold_the_budget() -> None:
    fast, slow = lane(40, 0.1), lane(16, 2.0, recent_gain_s=0.5)
    tasks, given = [task(1, 1.0, fast, slow), task(1, 1.0, lane(40, 0.1))], [0, 0]
    for _ in range(20):
        turn = next_turn(tasks, 1000, 8)
        assert turn is not None
        turn.lane.state.trials += turn.trials
        turn.lane.state.recent_gain_s = 0.0
        given[turn.task] += turn.trials
    assert given[1] >= 64


def test_the_faster_formulation_gets_more_and_the_slower_is_not_forgotten() -> None:
    fast, slow = lane(4, 0.1), lane(4, 0.4)
    tasks = [task(1, 1.0, fast, slow)]
    given = {id(fast): 0, id(slow): 0}
    for _ in range(40):
        turn = next_turn(tasks, 1000, 8)
        assert turn is not None
        turn.lane.state.trials += turn.trials
        given[id(turn.lane)] += turn.trials
    assert given[id(fast)] > 5 * given[id(slow)]


def test_a_lane_that_had_few_trials_is_tried_again_before_it_is_given_up() -> None:
    lucky, late = lane(16, 0.5), lane(16, 0.7)
    tasks = [task(1, 1.0, lucky, late)]
    turns = []
    for _ in range(4):
        turn = next_turn(tasks, 1000, 16)
        assert turn is not None
        turn.lane.state.trials += turn.trials
        turns.append(turn.lane)
    assert turns[0] is lucky
    assert late in turns


def test_a_lane_with_a_better_outlook_goes_on_though_it_is_slower_as_yet() -> None:
    lucky, late = lane(16, 1.0), lane(16, 1.5, outlook=0.6)
    turn = next_turn([task(1, 1.0, lucky, late)], 1000, 16)
    assert turn is not None
    assert turn.lane is late
    late.outlook = 0.8
    turn = next_turn([task(1, 1.0, lucky, late)], 1000, 16)
    assert turn is not None
    assert turn.lane is lucky


def test_an_exhausted_lane_hands_its_turn_on() -> None:
    done, left = lane(4, 0.1, exhausted=True), lane(4, 0.4)
    turn = next_turn([task(1, 1.0, done, left)], 10, 8)
    assert turn is not None
    assert turn.lane is left


def test_a_task_without_any_valid_time_does_not_eat_the_budget() -> None:
    hopeless, good = task(100, math.inf, lane(2)), task(1, 1.0, lane(2, 0.5))
    tasks, given = [hopeless, good], [0, 0]
    for _ in range(30):
        turn = next_turn(tasks, 1000, 8)
        assert turn is not None
        turn.lane.state.trials += turn.trials
        given[turn.task] += turn.trials
    assert 0 < given[0] < 20 < given[1]


def test_a_task_whose_default_failed_is_searched_first() -> None:
    tasks = [task(100, 1.0, lane(2, 0.9)), task(1, math.inf, lane(2, math.inf))]
    turn = next_turn(tasks, 10, 8)
    assert turn is not None
    assert turn.task == 1
