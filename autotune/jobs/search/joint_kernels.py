"""Kernels that a joint search tunes itself when no run is named."""

from __future__ import annotations

import sys
from pathlib import Path

from autotune.compiler.target import TuneRequest, on_cores, spaces, targets
from autotune.devices import LocalDevice
from autotune.errors import UsageError
from autotune.jobs.device import HYBRID, ChosenDevice, chosen_cores
from autotune.jobs.kernels import tune
from autotune.jobs.provenance import RunInterrupted
from autotune.jobs.requests import SearchRequest, StepRequest
from autotune.jobs.steps import side_of
from autotune.workloads import tasks

TRIALS = 512


def kernels_first(
    search: SearchRequest, step: StepRequest, chosen: ChosenDevice, logs: Path
) -> Path:
    """Tunes a step's kernels for all cores of this host, or of a model, and returns the run's folder.

    Args:
        search: The search's request.
        step: The step.
        chosen: The device.
        logs: Folder that the run's folder is made in.

    Raises:
        RunInterrupted: Ctrl-C was pressed.
        UsageError: The device is reached only over a tracker, or an option is invalid.
    """
    trials = TRIALS if search.kernel_trials is None else search.kernel_trials
    if search.storage is not None:
        raise UsageError(
            "--storage: processes that share a study choose from the same runs",
            hint="give them with --run",
        )
    emulate = search.emulate
    if emulate is None and chosen.device.kind != LocalDevice.kind:
        raise UsageError(
            "--run is missing: kernels for phones and boards are tuned through a tracker first",
            hint="autotune tracker up, then autotune kernels --target arm-cpu --tracker 127.0.0.1:9190 --key KEY",
        )
    target = targets.find("cpu" if emulate is None else "arm-cpu")
    cores, _ = chosen_cores(None if emulate is None else HYBRID, emulate, target, None)
    if cores is not None:
        target = on_cores(target, len(cores.cpus))
    space = spaces.load(target.space_path())
    wanted = step.training_step()
    form = step.form(wanted.batch, space.layout)
    graph = wanted.graph(form)
    if step.gpu_runs:  # Errors in them are reported before the tuning starts.
        from autotune.compiler.step import gpu_runs

        side_of(gpu_runs([Path(run) for run in step.gpu_runs]), wanted, form, graph)
    print(f"no --run: the kernels are tuned first, {trials} trials", file=sys.stderr)
    request = TuneRequest(
        target=target, space=space, workload=graph.name, batch=wanted.batch, tasks=tasks(graph),
        trials=trials, seed=1, cores=cores,
    )  # fmt: skip
    try:
        return tune(request, logs, step=step).path
    except RunInterrupted as stopped:
        advice = "and then search with them: the same `autotune joint` with --run and that folder"
        raise RunInterrupted(stopped.run, stopped.command, f"autotune: {advice}") from None
