"""The cores that kernels are tuned for, as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.errors import UsageError, choices

if TYPE_CHECKING:
    from autotune.compiler.runners import Runner
    from autotune.compiler.target import Cores, Fleet, TargetSpec, TuneRequest
    from autotune.devices import Cluster

HYBRID = "hybrid"


def chosen_cores(
    cluster: str | None, emulate: str | None, target: TargetSpec, fleet: Fleet | None
) -> tuple[Cores | None, Fleet | None]:
    """Returns the cores that --cluster and --emulate select, and the devices whose servers use these cores.

    Raises:
        UsageError: There is no such cluster or device, or the target has no clusters.
        DeviceError: The tracker has no server on such a cluster.
    """
    from autotune.compiler.target import Cores

    if cluster is None and emulate is None:
        return None, fleet
    option = "--emulate" if emulate is not None else "--cluster"
    if target.family != "cpu":
        raise UsageError(
            f"{option} goes with a processor, and --target {target.name} is none",
            hint="such as --target arm-cpu",
        )
    if emulate is not None:
        if fleet is not None:
            raise UsageError("--emulate and --tracker exclude each other", hint="give one of them")
        if not target.triple:
            raise UsageError(
                f"--emulate {emulate} does not go with --target {target.name}",
                hint="give --target arm-cpu",
            )
        from autotune.devices import probe
        from autotune.emulator.device import EmulatedDevice

        found = probe(EmulatedDevice(emulate)).clusters
        return Cores(cluster or HYBRID, _cpus(cluster or HYBRID, found), emulate), None
    assert cluster is not None
    if fleet is not None:
        return _served_cores(cluster, fleet)
    if target.triple:
        raise UsageError(
            f"--target {target.name} has no clusters on this host",
            hint="name a device with --tracker and --key, or a model of one with --emulate",
        )
    from autotune.devices import LocalDevice, probe

    return Cores(cluster, _cpus(cluster, probe(LocalDevice()).clusters)), None


def _cpus(name: str, clusters: Sequence[Cluster]) -> tuple[int, ...]:
    if name == HYBRID:
        return tuple(sorted(cpu for cluster in clusters for cpu in cluster.cpus))
    for cluster in clusters:
        if cluster.name == name:
            return cluster.cpus
    raise UsageError(
        f"there is no cluster '{name}'",
        hint=choices(name, [*(c.name for c in clusters), HYBRID], "there are"),
    )


def _served_cores(cluster: str, fleet: Fleet) -> tuple[Cores | None, Fleet]:
    from autotune.compiler.target import Cores
    from autotune.devices import cpu_list
    from autotune.jobs.device.fleet import served_under

    if cluster == HYBRID:
        return None, fleet
    own = replace(fleet, key=f"{fleet.key}-{cluster}")
    cpus = {one.cpus for one in served_under(own)}
    if len(cpus) > 1 or not all(cpus):
        raise UsageError(
            f"key '{own.key}' is of servers that do not report one cluster's cores",
            hint="start them with `autotune tracker up --per-cluster`",
        )
    return Cores(cluster, cpu_list(cpus.pop())), own


def model_runner(request: TuneRequest) -> Runner:
    """Returns the runner that takes times from the model of a request's emulated device.

    Raises:
        UsageError: There is no such device.
    """
    from autotune.compiler.runners import ModelRunner
    from autotune.emulator.model import load, schedule_estimate

    assert request.cores is not None
    profile, cpus = load(request.cores.emulated), request.cores.cpus
    clocks = [cluster.frequencies_khz[-1] for cluster in profile.clusters]
    return ModelRunner(
        f"emulated {profile.name}",
        (("cluster", request.cores.cluster), ("cores", len(cpus)), ("khz", tuple(clocks))),
        lambda traits: schedule_estimate(profile, traits, cpus, clocks)[0],
        request.seed,
    )
