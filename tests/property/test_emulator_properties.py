"""What holds on emulated devices whatever is set, written, run or broken."""

from contextlib import suppress
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.faults import FaultPlan
from autotune.emulator.kernel.sysfs import kernel_tree
from autotune.emulator.model import profile as profiles
from autotune.emulator.model.soc import Soc
from autotune.emulator.model.step_model import ALEXNET_B16, Workload, estimate
from autotune.errors import DeviceError

PROFILES = [profiles.load(name) for name in profiles.names()]
some_profile = st.sampled_from(PROFILES)
workloads = st.builds(
    Workload,
    st.just("drawn"),
    flops=st.floats(1e6, 1e12),
    bytes_moved=st.floats(0, 1e11),
    regions=st.integers(0, 500),
)
CPU = "/sys/devices/system/cpu"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_after_any_writes_limits_are_in_order_and_of_the_table(data: st.DataObject) -> None:
    profile = data.draw(some_profile)
    soc = Soc(profile)
    tree = kernel_tree(soc)
    clusters = st.integers(0, len(profile.clusters) - 1)
    for _ in range(data.draw(st.integers(1, 12))):
        cluster = profile.clusters[data.draw(clusters)]
        name = data.draw(
            st.sampled_from(
                ["scaling_min_freq", "scaling_max_freq", "scaling_governor", "scaling_setspeed"]
            )
        )
        value = data.draw(
            st.one_of(
                st.sampled_from(cluster.frequencies_khz).map(str),
                st.integers(-5, 10**7).map(str),
                st.sampled_from(cluster.governors),
                st.text(max_size=4),
            )
        )
        with suppress(OSError):
            tree.write(f"{CPU}/cpufreq/policy{cluster.cpus[0]}/{name}", value.encode())
        soc.set_celsius(data.draw(st.floats(20, 95)))
        cpu = data.draw(st.sampled_from(profile.cpus[1:]))
        tree.write(f"{CPU}/cpu{cpu}/online", data.draw(st.sampled_from([b"0", b"1"])))
        for each in profile.clusters:
            folder = f"{CPU}/cpufreq/policy{each.cpus[0]}"
            low, now, high = (
                int(tree.read(f"{folder}/scaling_{n}_freq")) for n in ("min", "cur", "max")
            )
            assert low <= now <= high
            assert {low, now, high} <= set(each.frequencies_khz)


@settings(max_examples=100, deadline=None)
@given(st.data(), workloads)
def test_a_higher_clock_is_never_slower(data: st.DataObject, workload: Workload) -> None:
    profile = data.draw(some_profile)
    cpus = data.draw(st.lists(st.sampled_from(profile.cpus), min_size=1, unique=True))
    clocks = [data.draw(st.sampled_from(c.frequencies_khz)) for c in profile.clusters]
    raised = [
        data.draw(st.sampled_from([f for f in c.frequencies_khz if f >= khz]))
        for c, khz in zip(profile.clusters, clocks, strict=True)
    ]
    before = estimate(profile, workload, cpus, clocks)
    after = estimate(profile, workload, cpus, raised)
    assert after.time_s <= before.time_s * (1 + 1e-9)
    used = {profile.cluster_of(cpu) for cpu in cpus}
    if all(raised[k] > clocks[k] for k in used):
        assert after.time_s < before.time_s
    assert before.net_w > 0
    assert all(0 < share <= 1 for share in before.busy.values())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_energy_is_the_integral_of_power(data: st.DataObject) -> None:
    profile = data.draw(some_profile)
    soc = Soc(profile)
    loads = []
    by_hand = 0.0
    for _ in range(data.draw(st.integers(1, 8))):
        what = data.draw(st.sampled_from(["begin", "end", "limit"]))
        if what == "begin":
            cpus = data.draw(st.lists(st.sampled_from(profile.cpus), min_size=1, unique=True))
            loads.append(soc.begin(ALEXNET_B16, cpus))
        elif what == "end" and loads:
            soc.end(loads.pop())
        elif what == "limit":
            policy = soc.policies[0]
            with soc.lock:
                soc.advance()
                policy.asked_max_khz = data.draw(st.sampled_from(policy.cluster.frequencies_khz))
        start, seconds = soc.clock.now(), data.draw(st.floats(0.1, 50))
        soc.clock.sleep(seconds)
        by_hand += soc.mean_net_w(start, soc.clock.now()) * seconds
    assert soc.net_j() == pytest.approx(by_hand, rel=1e-6, abs=1e-9)
    ambient = profile.thermal.ambient_c
    assert soc.celsius() >= ambient - 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 12), st.floats(0.02, 20))
def test_every_call_ends_in_time_whatever_goes_wrong(seed: int, count: int, timeout: float) -> None:
    device = EmulatedDevice("meizu-16t", faults=FaultPlan.random(seed, count, calls=6, seconds=20))
    path = PurePosixPath(f"{CPU}/cpufreq/policy4/scaling_max_freq")
    for turn in range(12):
        start = device.clock.now()
        with suppress(DeviceError):
            if turn % 3 == 0:
                device.write(path, b"1612800", timeout=timeout)
            elif turn % 3 == 1:
                assert int(device.read(path, timeout=timeout)) <= 2419200
            else:
                device.run(["uname", "-m"], timeout=timeout)
        assert device.clock.now() - start <= timeout * (1 + 1e-9) + 1e-9
