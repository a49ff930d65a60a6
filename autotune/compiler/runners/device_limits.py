"""Limits of OpenCL kernels: from the device if there is one, otherwise those of the target's devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.target import Limits, TargetSpec, TuneRequest, given_limits

# On Mali, local memory is ordinary memory (Arm, "Mali GPU OpenCL Developer Guide", on the use of local memory).
_PLAIN_LOCAL_MEMORY = ("mali",)
# The value that Adreno 6xx and 7xx drivers give for CL_DEVICE_IMAGE_MAX_BUFFER_SIZE. OpenCL 1.2 guarantees 65536.
_IMAGE_TEXELS = {"adreno": 1 << 27}


def with_device_limits(request: TuneRequest, device: DeviceFingerprint) -> TuneRequest:
    """Returns a request whose space has the limits of the measured device.

    A stand-in can only narrow the limits that the target's devices are assumed to have. Limits in the request's
    space or target narrow them further.
    """
    if request.target.family != "opencl":
        return request
    limits = assumed(request.target)
    details = dict(device.details)
    if "max_work_group_size" in details:
        here = _limits(details)
        if device.stand_in and "device" in dict(request.target.tvm):
            # A stand-in with ordinary local memory says nothing about the target's.
            here = here.model_copy(update={"local_memory": limits.local_memory})
        limits = limits.within(here) if device.stand_in else here
    for narrower in (request.space.limits, given_limits(dict(request.target.tvm))):
        if narrower is not None:
            limits = limits.within(narrower)
    return replace(request, space=request.space.model_copy(update={"limits": limits}))


def assumed(target: TargetSpec) -> Limits:
    """Returns the limits that an OpenCL target's devices are assumed to have."""
    maker = dict(target.tvm).get("device", "")
    return Limits(
        local_memory="global" if maker in _PLAIN_LOCAL_MEMORY else "local",
        image_buffer_max=_IMAGE_TEXELS.get(maker, 0),
    )


def _limits(details: dict[str, Any]) -> Limits:
    """Returns the limits in a device's fingerprint."""
    return Limits(
        max_threads_per_block=details["max_work_group_size"],
        max_item_sizes=(*details["max_work_item_sizes"], 1, 1)[:3],
        max_local_memory_bytes=details["local_mem_bytes"],
        local_memory=details["local_mem_type"],
        sub_group_size=max(1, details["sub_group_size"]),
        vector_width=max(1, details["native_float_vector_width"]),
        image2d_max=details["image2d_max"],
        image_buffer_max=details.get("image_buffer_max", 0),
        fp16=details["fp16"],
        compute_units=max(1, details["compute_units"]),
        max_alloc_bytes=details.get("max_alloc_bytes") or None,
    )
