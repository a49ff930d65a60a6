"""Uses a device as the bench of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from autotune.devices import Cluster
from autotune.measurement import Calls, Setting, StepBench, StepRun
from autotune.studies.evaluators.evaluator import WAYS, Measured
from autotune.studies.space import NO_LIMITS, CpuConfiguration, Figures, Limits


class DeviceEvaluator:
    """Measures configurations on a device.

    Args:
        bench: Measures settings on the device.
        needs_energy: Whether a run without joules is invalid.
        limits: Limits to keep. A run that does not report a limited figure is invalid too.
    """

    def __init__(self, bench: StepBench, *, needs_energy: bool, limits: Limits = NO_LIMITS) -> None:
        self._bench = bench
        self._needs_energy = needs_energy
        self._limits = limits

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Evaluator.clusters`."""
        return self._bench.info.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Evaluator.device`."""
        info = self._bench.info
        return {
            "serial": info.serial,
            "model": info.model,
            "soc": info.soc,
            "system": info.system,
            "rooted": info.rooted,
            "emulated": info.emulated,
        }

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Evaluator.measure`."""
        return self.measured(self._bench.run(setting_of(self.clusters, configuration)))

    def measured(self, run: StepRun) -> Measured:
        """Converts a run into a study's measurement."""
        raw = {
            "step_s": list(run.step_s),
            "energy": asdict(run.energy) if run.energy else None,
            "marks": list(run.marks),
            "rails": {name: joules / run.count for name, joules in run.rails.items()},
            "khz": run.khz,
            "records": list(run.records),
            "rejected": [
                {
                    "status": one.status,
                    "message": one.message,
                    "step_s": list(one.step_s),
                    "marks": list(one.marks),
                    "records": list(one.records),
                }
                for one in run.rejected
            ],
        }
        if run.status == "run_error":
            return Measured("failed", run.message, raw=raw)
        if run.status != "ok":
            return Measured("invalid", run.message, raw=raw)
        if run.energy is None and self._needs_energy:
            return Measured("invalid", "; ".join(run.marks) or "no joules", raw=raw)
        figures = Figures(run.time_s, run.energy_j, run.celsius, run.memory_bytes, run.deviation_j)
        if unknown := self._limits.unknown(figures):
            names = ", ".join(name.partition("_")[0] for name in unknown)
            return Measured("invalid", f"limited, and not known: {names}", raw=raw)
        return Measured("ok", figures=figures, raw=raw)


def crossing_shares(run: StepRun, calls: Calls | None) -> dict[str, float] | None:
    """Returns the shares of a step in which tensors crossed to a GPU and back, by kind of crossing.

    Returns None if the calls do not report it.
    """
    if calls is None or calls.gpu is None:
        return None
    took = calls.gpu.step_s
    return {word: took[way] / run.time_s for way, word in WAYS.items()}


def setting_of(clusters: Sequence[Cluster], configuration: CpuConfiguration | None) -> Setting:
    """Returns the device setting of a configuration; for None, all cores, left to the system."""
    if configuration is None:
        every = sum(len(cluster.cpus) for cluster in clusters)
        return Setting(None, (None,) * len(clusters), every)
    return Setting(
        configuration.cpus(clusters),
        tuple(setting.khz for setting in configuration.clusters),
        configuration.threads,
    )
