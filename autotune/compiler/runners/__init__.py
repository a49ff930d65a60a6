"""What builds and measures candidates: on this machine, under qemu-user, over an RPC tracker, or by a model."""

from autotune.compiler.runners.builder import Builder, BuildRequest, target_text
from autotune.compiler.runners.device_limits import asked, assumed
from autotune.compiler.runners.model_runner import ModelRunner
from autotune.compiler.runners.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.runners.rpc_runner import RpcRunner
from autotune.compiler.runners.runner import (
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    LocalRunner,
    MeasureRequest,
    Runner,
    host_device,
    opencl_fingerprint,
    runner_for,
    stand_in_notice,
)

__all__ = [
    "asked",
    "assumed",
    "Builder",
    "BuildRequest",
    "CompareRequest",
    "Comparison",
    "DeviceFingerprint",
    "host_device",
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
]
