"""The emulated chip: its profiles, the fit to the paper's table, and its time, energy and heat."""

import itertools
import math
from pathlib import Path

import pytest

from autotune.emulator.model import profile as profiles
from autotune.emulator.model.clock import RealClock
from autotune.emulator.model.fit import METER_LIMIT_W, Row, fit, metered_j, predict, read_table
from autotune.emulator.model.soc import Soc
from autotune.emulator.model.step_model import ALEXNET_B16, Workload, estimate
from autotune.errors import UsageError

TABLE = Path(__file__).parents[2] / "data" / "meizu16t_alexnet_b16.csv"
MEIZU = profiles.load("meizu-16t")
ROWS = read_table(TABLE, MEIZU)
LITTLE, BIG = MEIZU.clusters
FASTEST = (LITTLE.frequencies_khz[-1], BIG.frequencies_khz[-1])
LENET = Workload("lenet, batch 1", 2.5e6, 1e6, regions=40)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def test_the_table_has_21_rows_and_the_profile_all_its_clocks() -> None:
    assert len(ROWS) == 21
    assert {row.clocks_khz[1] for row in ROWS if row.cpus[0] == 4} == {2419200, 1612800, 710400}
    assert {row.clocks_khz[0] for row in ROWS if row.cpus[0] == 0} == {1785600, 1209600, 576000}


def test_times_are_the_papers_within_a_tenth() -> None:
    errors = [abs(predict(MEIZU, row).time_s / row.time_s - 1) for row in ROWS]
    assert median(errors) < 0.03
    assert max(errors) < 0.10


def test_energies_are_the_papers_as_its_meter_saw_them() -> None:
    errors = [abs(metered_j(predict(MEIZU, row)) / row.energy_j - 1) for row in ROWS]
    assert median(errors) < 0.07
    assert max(errors) < 0.56  # One small core at its lowest: 4.8 J for 3.1 J.


def test_the_meter_hides_energy_only_where_several_large_cores_work() -> None:
    hidden = {row.name for row in ROWS if predict(MEIZU, row).net_w > METER_LIMIT_W}
    assert hidden == {"big 2 high", "big 4 high", "hybrid 8 high"}


def test_the_paper_s_findings_hold() -> None:
    steps = {row.name: predict(MEIZU, row) for row in ROWS}
    assert min(steps, key=lambda name: steps[name].time_s) == "big 4 high"
    assert min(steps, key=lambda name: metered_j(steps[name])) == "small 1 low"
    # Eight cores are slower than the four large ones, since work is split evenly.
    assert steps["hybrid 8 high"].time_s > 1.5 * steps["big 4 high"].time_s
    # At the lowest clock four large cores are slower than two.
    assert steps["big 4 low"].time_s > steps["big 2 low"].time_s
    ours = sorted(ROWS, key=lambda row: metered_j(steps[row.name]))
    theirs = sorted(ROWS, key=lambda row: row.energy_j)
    squares = sum((ours.index(row) - theirs.index(row)) ** 2 for row in ROWS)
    assert 1 - 6 * squares / (21 * (21**2 - 1)) > 0.85  # Spearman's rank correlation.


def test_a_tiny_model_is_fastest_on_one_core() -> None:
    times = [
        estimate(MEIZU, LENET, BIG.cpus, FASTEST, threads=threads).time_s for threads in range(1, 5)
    ]
    assert min(times) == times[0]


def test_the_fit_ends_at_the_stored_constants() -> None:
    found, limit = fit(ROWS, MEIZU)
    for mine, theirs in zip(found.clusters, MEIZU.clusters, strict=True):
        for name, value in theirs.model.model_dump().items():
            assert getattr(mine.model, name) == pytest.approx(value, rel=0.05), name
    assert found.model.serial_share == pytest.approx(MEIZU.model.serial_share, rel=0.05)
    assert found.model.waiting_share == pytest.approx(MEIZU.model.waiting_share, rel=0.05)
    assert limit == pytest.approx(METER_LIMIT_W, rel=0.05)


def test_the_fit_finds_constants_that_made_a_table() -> None:
    row = ROWS[0]
    changed = MEIZU.model.model_copy(update={"serial_share": 0.2})
    truth = MEIZU.model_copy(update={"model": changed})
    steps = [predict(truth, row) for row in ROWS]
    table = [
        Row(row.name, row.cpus, row.clocks_khz, step.time_s, metered_j(step))
        for row, step in zip(ROWS, steps, strict=True)
    ]
    found, _ = fit(table, MEIZU)
    assert found.model.serial_share == pytest.approx(0.2, rel=0.01)
    assert predict(found, row).time_s == pytest.approx(steps[0].time_s, rel=1e-3)


@pytest.mark.parametrize("cpus", [(), (8,), (0, 99)])
def test_a_step_needs_cores_that_are_there(cpus: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        estimate(MEIZU, ALEXNET_B16, cpus, FASTEST)


@pytest.mark.parametrize("flops", [0.0, -1.0, math.nan])
def test_work_without_operations_is_refused(flops: float) -> None:
    with pytest.raises(UsageError, match="nothing"):
        Workload("nothing", flops, 1.0)


def test_fewer_threads_than_cores_take_the_fast_ones_and_more_share_them() -> None:
    two = estimate(MEIZU, ALEXNET_B16, MEIZU.cpus, FASTEST, threads=2)
    assert set(two.busy) == {4, 5}
    one_core = estimate(MEIZU, ALEXNET_B16, [4], FASTEST)
    shared = estimate(MEIZU, ALEXNET_B16, [4], FASTEST, threads=4)
    assert shared.time_s == pytest.approx(one_core.time_s, rel=0.01)
    five = estimate(MEIZU, ALEXNET_B16, [4, 5, 6], FASTEST, threads=4)
    three = estimate(MEIZU, ALEXNET_B16, [4, 5, 6], FASTEST, threads=3)
    assert five.time_s > three.time_s  # One core has two of four parts.


@pytest.mark.parametrize("name", profiles.names())
def test_each_profile_says_where_its_numbers_come_from(name: str) -> None:
    profile = profiles.load(name)
    assert profile.name == name
    assert all(len(source) > 20 for source in profile.sources)


def test_the_shipped_devices_differ_in_what_they_have() -> None:
    found = {name: profiles.load(name) for name in profiles.names()}
    assert [len(found[n].clusters) for n in ("meizu-16t", "three-cluster", "jetson-tx2")] == [
        2,
        3,
        2,
    ]
    assert {p.rooted for p in found.values()} == {True, False}
    assert {p.battery.unit for p in found.values() if p.battery} == {"uA", "mA"}
    assert {p.battery.discharge_sign for p in found.values() if p.battery} == {1, -1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rooted = true", "rooted = 1"),
        ("rooted = true", "rooted = true\ncolour = 'red'"),
        ("cpus = [4, 5, 6, 7]", "cpus = [4, 5, 6, 6]"),
        ("cpus = [4, 5, 6, 7]", "cpus = [3, 5, 6, 7]"),
        ("celsius = 35.0, caps_khz = [1785600, 2016000]", "celsius = 35.0, caps_khz = [1785600]"),
        ("celsius = 35.0", "celsius = 32.5"),
        ('name = "meizu-16t"', "name = "),
    ],
)
def test_a_wrong_profile_is_refused(old: str, new: str) -> None:
    text = (profiles.FOLDER / "meizu-16t.toml").read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(UsageError, match=r"phone\.toml"):
        profiles.parse(text.replace(old, new), "phone.toml")


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="meizu-16t"):
        profiles.load("nokia")


def performance(soc: Soc) -> Soc:
    for policy in soc.policies:
        policy.governor = "performance"
    return soc


def test_a_run_takes_the_model_s_time_and_energy() -> None:
    soc = performance(Soc(MEIZU))
    step = estimate(MEIZU, ALEXNET_B16, BIG.cpus, FASTEST)
    load = soc.run(ALEXNET_B16, BIG.cpus, steps=3)
    assert load.steps_done == pytest.approx(3)
    assert soc.clock.now() == pytest.approx(3 * step.time_s)
    assert soc.net_j() == pytest.approx(3 * step.net_j)
    assert soc.energy_j() == pytest.approx(3 * step.net_j + soc.clock.now() * MEIZU.model.idle_w)
    assert soc.net_w() == 0


def test_a_run_can_be_cut_off() -> None:
    soc = Soc(MEIZU)
    load = soc.run(ALEXNET_B16, [0], steps=10, limit_s=5)
    assert soc.clock.now() == pytest.approx(5)
    assert 0 < load.steps_done < 1
    assert load.ended
    assert soc.loads() == ()


def test_ten_minutes_of_training_heat_the_phone_as_in_the_paper() -> None:
    soc = Soc(MEIZU)
    load = soc.begin(ALEXNET_B16, BIG.cpus)
    soc.clock.sleep(600)
    assert soc.celsius() == pytest.approx(39, abs=1)
    assert soc.clocks_khz()[1] == pytest.approx(1.8e6, rel=0.01)
    soc.end(load)
    soc.clock.sleep(3600 * 3)
    assert soc.celsius() == pytest.approx(MEIZU.thermal.ambient_c, abs=0.1)
    assert soc.throttle_level() == 0


def test_heat_does_not_depend_on_how_often_it_is_looked_at() -> None:
    once, often = Soc(MEIZU), Soc(MEIZU)
    for soc in (once, often):
        soc.begin(ALEXNET_B16, BIG.cpus)
    once.clock.sleep(600)
    for _ in range(600):
        often.clock.sleep(1)
        often.celsius()
    assert once.celsius() == pytest.approx(often.celsius(), abs=1e-6)
    assert once.net_j() == pytest.approx(often.net_j(), rel=1e-9)


def test_time_moves_on_after_many_days() -> None:
    soc = Soc(MEIZU)
    soc.clock.sleep(1e9)
    load = soc.run(LENET, BIG.cpus, steps=3)
    assert load.steps_done == pytest.approx(3)


def test_a_throttled_step_is_slower() -> None:
    cool, hot = performance(Soc(MEIZU)), performance(Soc(MEIZU))
    hot.set_celsius(45)
    for soc in (cool, hot):
        soc.run(ALEXNET_B16, BIG.cpus)
    assert hot.clock.now() > 1.3 * cool.clock.now()


def test_two_loads_on_the_same_cores_take_turns() -> None:
    alone, both = performance(Soc(MEIZU)), performance(Soc(MEIZU))
    other = both.begin(ALEXNET_B16, BIG.cpus)
    alone.run(ALEXNET_B16, BIG.cpus)
    load = both.run(ALEXNET_B16, BIG.cpus)
    assert both.clock.now() == pytest.approx(2 * alone.clock.now())
    assert load.net_j + other.net_j == pytest.approx(both.net_j())
    assert max(both.busy_s().values()) <= both.clock.now()


def test_a_load_moves_when_its_cores_go_off() -> None:
    soc = Soc(MEIZU)
    load = soc.begin(ALEXNET_B16, [7])
    soc.set_online(7, False)
    soc.clock.sleep(1)
    assert soc.busy_s()[7] == 0
    assert load.steps_done > 0


def test_the_last_core_stays_on() -> None:
    soc = Soc(MEIZU)
    for cpu in MEIZU.cpus[1:]:
        soc.set_online(cpu, False)
    with pytest.raises(UsageError):
        soc.set_online(0, False)
    with pytest.raises(UsageError):
        soc.set_online(8, True)
    assert soc.online() == (0,)


def test_the_governor_follows_the_load() -> None:
    soc = Soc(MEIZU)
    assert soc.clocks_khz() == (LITTLE.frequencies_khz[0], BIG.frequencies_khz[0])
    soc.begin(ALEXNET_B16, [0])
    assert soc.clocks_khz() == (LITTLE.frequencies_khz[-1], BIG.frequencies_khz[0])


def test_mean_power_of_a_past_interval() -> None:
    soc = Soc(MEIZU)
    soc.clock.sleep(10)
    load = soc.begin(ALEXNET_B16, [0])
    watts = soc.net_w()
    soc.clock.sleep(5)
    soc.end(load)
    soc.clock.sleep(5)
    assert soc.mean_net_w(10, 15) == pytest.approx(watts)
    assert soc.mean_net_w(5, 20) == pytest.approx(watts / 3)
    assert soc.mean_net_w(0, 10) == 0


def test_the_model_runs_on_the_real_clock_too() -> None:
    soc = Soc(MEIZU, RealClock())
    load = soc.run(LENET, BIG.cpus, steps=math.inf, limit_s=0.05)
    assert 0.05 <= soc.clock.now() < 5
    assert load.busy_s == pytest.approx(soc.clock.now(), abs=2)
    assert load.steps_done > 1


def test_rails_of_the_jetson_stay_below_its_total() -> None:
    rails = [r for m in profiles.load("jetson-tx2").monitors for r in m.rails]
    total = next(r for r in rails if r.label == "VDD_IN")
    others = [r for r in rails if r is not total]
    assert sum(r.idle_w for r in others) < total.idle_w
    assert sum(r.share for r in others) < total.share == 1


def test_frequencies_of_the_clusters_fall_only_with_rising_trips() -> None:
    for name in profiles.names():
        for cooler, warmer in itertools.pairwise(profiles.load(name).thermal.trips):
            assert all(b <= a for a, b in zip(cooler.caps_khz, warmer.caps_khz, strict=True))
