"""What our searches may learn from, where a benchmark judges them: nothing of the layer that is searched."""

from __future__ import annotations

from opencl_gpu import of_other_layers

from autotune.compiler.run.warm_start import MOST_TAUGHT
from autotune.records.database import About, Database, Identity, Schedule, SearchedTask, Source
from autotune.workloads import Kernel, parse_kernel

GPU = Identity("NVIDIA H200", "opencl", "580", "0.27.0", "opencl", stand_in=False)
LAYER = "conv2d:n=1,c=16,h=14,w=14,k=32,r=3,s=3,stride=1,pad=1"
OTHER = "conv2d:n=1,c=16,h=14,w=14,k=32,r=1,s=1,stride=1,pad=0"
ROLES = ("forward", "data_grad", "weight_grad")


def _run(kernel: Kernel, schedules: int) -> Database:
    """Records of a run of one kernel, in two formulations."""
    task = SearchedTask(kernel.spec, kernel.role, 1, 9.0, schedules, ())
    about = About("run", 0.0, "conv2d", None)
    source = Source(kernel.name, GPU, "all", about, schedules, {kernel.name: task})
    found = [
        Schedule.of(kernel.name, formulation, f"{formulation}{n}", [], {source.id: 1.0 + n})
        for formulation in ("gemm", "winograd_gemm")
        for n in range(schedules)
    ]
    return Database.of([source], found)


def test_a_search_learns_nothing_of_its_own_layer_and_a_spread_of_the_others() -> None:
    fused = parse_kernel(f"{LAYER}+bias.forward:n=1,c=32,s=196,relu=1", "forward")
    runs = [_run(parse_kernel(spec, role), 256) for spec in (LAYER, OTHER) for role in ROLES]
    runs.append(_run(fused, 8))
    records = Database.of(
        [source for run in runs for source in run.sources.values()],
        [one for run in runs for one in run.schedules.values()],
    )
    others = {parse_kernel(OTHER, role).name for role in ROLES}
    for role in ROLES:
        reported = of_other_layers(records, parse_kernel(LAYER, role))
        assert set(reported.tasks()) == others
        for schedules in reported.tasks().values():
            times = [one.best_s for one in schedules]
            assert len(times) == 2 * MOST_TAUGHT
            assert times[0] == 1.0 and times[-1] > 200
