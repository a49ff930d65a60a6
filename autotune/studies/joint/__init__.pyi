from .joint import Choice, JointEvaluator
from .joint_run import ROUND, JointOutcome, JointRun, KeptSchedules, Sequential
from .joint_steps import DeviceSteps, FormOnDevice
from .placement_run import PROBE
from .placing import GpuKernel, Placing, gpu_form

__all__ = [
    "Choice",
    "DeviceSteps",
    "FormOnDevice",
    "gpu_form",
    "GpuKernel",
    "JointEvaluator",
    "JointOutcome",
    "JointRun",
    "KeptSchedules",
    "Placing",
    "PROBE",
    "ROUND",
    "Sequential",
]
