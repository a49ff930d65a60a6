from .build_worker import linker
from .builder import Builder, BuildRequest, target_text
from .device_limits import assumed, with_device_limits
from .local_devices import host_device, opencl_fingerprint, runner_for, stand_in_notice
from .model_runner import ModelRunner
from .reference_data import TOLERANCE, ReferenceData
from .rpc_runner import RpcRunner
from .runner import (
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    LocalRunner,
    MeasureRequest,
    Runner,
)

__all__ = [
    "assumed",
    "Builder",
    "BuildRequest",
    "CompareRequest",
    "Comparison",
    "DeviceFingerprint",
    "host_device",
    "linker",
    "LocalRunner",
    "MeasureRequest",
    "ModelRunner",
    "opencl_fingerprint",
    "ReferenceData",
    "RpcRunner",
    "Runner",
    "runner_for",
    "stand_in_notice",
    "target_text",
    "TOLERANCE",
    "with_device_limits",
]
