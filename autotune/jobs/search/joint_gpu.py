"""Measures what crossings to a device's GPU cost. A joint search must know this before it begins."""

from __future__ import annotations

import logging

from autotune.errors import StableDeviceError
from autotune.jobs.steps import DeviceWorkload
from autotune.measurement import OpenClDevice, Setting, StepBench, crossing_seconds
from autotune.studies.joint import GpuKernel, Placing, gpu_form

LOGGER = logging.getLogger("autotune.joint")
_LIMIT_S = 600.0


def measured_placing(
    steps: StepBench, workload: DeviceWorkload, setting: Setting
) -> Placing | None:
    """Measures the cost of moving a step's tensors to the GPU and back.

    Returns None if no GPU takes part in the step.

    Args:
        steps: The device.
        workload: The step on it.
        setting: Cores and clocks during the measurement.

    Raises:
        StableDeviceError: The device has no OpenCL, or reports no costs.
    """
    if workload.pools is None or not any(workload.sides):
        return None
    forms, device = [], OpenClDevice("", gpu=False)
    for form, side, runner in zip(
        workload.pools.forms, workload.sides, workload.runners, strict=True
    ):
        assert side is not None
        observed = steps.observe(runner.crossings(), setting, _LIMIT_S)
        try:
            device, costs = crossing_seconds(observed.lines)
        except ValueError as error:
            raise StableDeviceError(f"{steps.info.serial}: {error}") from error
        kernels = {
            call: GpuKernel(
                one.kernel.name,
                one.figures.schedule,
                one.figures.formulation,
                (one.figures.tuned_ms or 0.0) / 1e3,
            )
            for call, one in side.kernels.items()
        }
        forms.append(gpu_form(form.graph, kernels, side.orders, costs, workload.gpu_memory))
        if side.tuned_on and not device.name.startswith(side.tuned_on):
            message = "the GPU's kernels were tuned on %s, and the device has %s"
            LOGGER.warning(message, side.tuned_on, device.name)
    return Placing(forms, [form.of_call for form in workload.pools.forms], device)
