"""Uses the raw traces published with EMDL'21 as an evaluator. Each setting of the phone is a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.devices import Cluster
from autotune.errors import UsageError
from autotune.power import TracedRun, meizu_traces
from autotune.studies.replay.replay import CAPACITY, TableEvaluator
from autotune.studies.space import ClusterSetting, CpuConfiguration, Figures

CLUSTERS = (
    Cluster("little", (0, 1, 2, 3), CAPACITY["little"], 300_000, 1_785_600, (), (), ()),
    Cluster("big", (4, 5, 6, 7), CAPACITY["big"], 710_400, 2_419_200, (), (), ()),
)
"""The Meizu 16T. The paper counts its cores as four and four. Clocks are those in autotune/emulator/profiles."""
MISSING = "no power readings"
NAMES = tuple(cluster.name for cluster in CLUSTERS)


def read_traces(
    folder: Path, network: str, batch: int, *, usb_alone: bool = False
) -> TableEvaluator:
    """Reads the measurements of one network at one batch size from the settings in a folder of the archive.

    A step's joules are the mean power of the training window times the seconds of a step in the trainer's log. They
    include the idle device's joules. If power was not read, energy is missing, and a mark says so. A setting that
    left the cores to the system, and does not record which ones worked, is left out if there are other settings.

    Args:
        folder: Folder that contains settings, such as `MEIZU_Core_f0` and `MEIZU_Freq_1708800`.
        network: Name as the archive writes it; case does not matter.
        batch: Batch size.
        usb_alone: Leave out the battery's share, as the paper did.

    Raises:
        UsageError: There is no such run, or a setting cannot be determined.
    """
    every = {path: meizu_traces.runs(path) for path in meizu_traces.settings(folder)}
    wanted = [
        (path, run)
        for path, runs in every.items()
        for run in runs
        if (run.network.lower(), run.batch) == (network.lower(), batch) and run.step_s
    ]
    if not wanted:
        known = sorted({(r.network, r.batch) for runs in every.values() for r in runs if r.step_s})
        raise UsageError(
            f"{folder} has no run of {network} at batch size {batch}",
            hint=f"it has {', '.join(f'{n} {b}' for n, b in known)}" if known else "",
        )
    figures: dict[CpuConfiguration, Figures] = {}
    marks: dict[CpuConfiguration, str] = {}
    unknown: list[UsageError] = []
    for path, run in wanted:
        meizu_traces.setting(path)
        try:
            configuration = configuration_of(path, every[path])
        except UsageError as error:
            unknown.append(error)
            continue
        if configuration in figures:
            raise UsageError(
                f"{path}: another folder has {configuration.text(NAMES)} too",
                hint="leave one of them out",
            )
        joules = run.usb_j if usb_alone else run.total_j
        step_s = run.step_s or 0.0
        figures[configuration] = Figures(
            step_s,
            None if joules is None else joules / run.duration_s * step_s,
            memory_bytes=run.memory_bytes,
        )
        mark = run.saturated if joules is not None else MISSING
        if mark:
            marks[configuration] = mark
    if not figures:
        raise unknown[0]
    source = "USB alone" if usb_alone else "USB and battery"
    about = {
        "name": f"meizu-16t, {wanted[0][1].network} at batch size {batch}",
        "emulated": f"replayed from the published traces in {folder.resolve().name}; "
        + _energy(source, sum(f.energy_j is None for f in figures.values()), len(figures))
        + (f"; left out: {', '.join(error.message for error in unknown)}" if unknown else ""),
    }
    return TableEvaluator(CLUSTERS, figures, about, marks=marks)


def _energy(source: str, missing: int, count: int) -> str:
    if missing == count:
        return f"energy is missing: {MISSING}"
    text = f"joules of {source}, idle included"
    return f"{text}; energy is missing of {missing} of {count} settings" if missing else text


def configuration_of(folder: Path, runs: Sequence[TracedRun]) -> CpuConfiguration:
    """Returns cores and clocks of a setting. If cores were left to the system, they are the ones that worked.

    Args:
        folder: The setting's folder.
        runs: Its runs.

    Raises:
        UsageError: They cannot be determined from the folder.
    """
    setting = meizu_traces.setting(folder)
    cpus = setting.cpus or meizu_traces.busy_cores(folder, runs)
    if not cpus:
        raise UsageError(f"{folder}: its readings do not show which cores worked")
    counts = [len(set(cpus) & set(cluster.cpus)) for cluster in CLUSTERS]
    return CpuConfiguration(
        tuple(ClusterSetting(n, setting.khz if n else None) for n in counts), sum(counts)
    )
