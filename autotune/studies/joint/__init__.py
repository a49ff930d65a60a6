"""Schedules, cores and clocks searched together, and calls placed on the CPU or the GPU."""

from autotune.studies.joint.joint import Choice, JointBench
from autotune.studies.joint.joint_run import ROUND, JointRun, KeptSchedules
from autotune.studies.joint.joint_steps import DeviceSteps, FormOnDevice
from autotune.studies.joint.placement_run import PROBE
from autotune.studies.joint.placing import GpuKernel, Placing, gpu_form

__all__ = [
    "Choice",
    "DeviceSteps",
    "FormOnDevice",
    "gpu_form",
    "GpuKernel",
    "JointBench",
    "JointRun",
    "KeptSchedules",
    "Placing",
    "PROBE",
    "ROUND",
]
