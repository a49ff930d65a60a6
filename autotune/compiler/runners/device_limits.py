"""What OpenCL kernels may use: asked from the device where there is one, else what the target's devices have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.target import Limits, TargetSpec, TuneRequest, given_limits

# On Mali local memory is plain memory (Arm, "Mali GPU OpenCL Developer Guide", on the use of local memory).
_PLAIN_LOCAL_MEMORY = ("mali",)
# What drivers of Adreno 6xx and 7xx answer for CL_DEVICE_IMAGE_MAX_BUFFER_SIZE; the least of OpenCL 1.2 is 65536.
_IMAGE_TEXELS = {"adreno": 1 << 27}


def with_device_limits(request: TuneRequest, device: DeviceFingerprint) -> TuneRequest:
    """A request whose space has the limits of the device that it is measured on.

    A device that only stands in for the target's narrows what the target's devices are assumed to allow. What the
    request's own space or target gives narrows it further.
    """
    if request.target.family != "opencl":
        return request
    limits = assumed(request.target)
    told = dict(device.details)
    if "max_work_group_size" in told:
        here = _told(told)
        if device.stand_in and "device" in dict(request.target.tvm):
            # That a stand-in's local memory is plain says nothing of the target's.
            here = here.model_copy(update={"local_memory": limits.local_memory})
        limits = limits.within(here) if device.stand_in else here
    for narrower in (request.space.limits, given_limits(dict(request.target.tvm))):
        if narrower is not None:
            limits = limits.within(narrower)
    return replace(request, space=request.space.model_copy(update={"limits": limits}))


def assumed(target: TargetSpec) -> Limits:
    """What an OpenCL target's devices have, as long as none is asked."""
    maker = dict(target.tvm).get("device", "")
    return Limits(
        local_memory="global" if maker in _PLAIN_LOCAL_MEMORY else "local",
        image_buffer_max=_IMAGE_TEXELS.get(maker, 0),
    )


def _told(told: dict[str, Any]) -> Limits:
    """What a device's fingerprint tells."""
    return Limits(
        max_threads_per_block=told["max_work_group_size"],
        max_item_sizes=(*told["max_work_item_sizes"], 1, 1)[:3],
        max_local_memory_bytes=told["local_mem_bytes"],
        local_memory=told["local_mem_type"],
        sub_group_size=max(1, told["sub_group_size"]),
        vector_width=max(1, told["native_float_vector_width"]),
        image2d_max=told["image2d_max"],
        image_buffer_max=told.get("image_buffer_max", 0),
        fp16=told["fp16"],
        compute_units=max(1, told["compute_units"]),
        max_alloc_bytes=told.get("max_alloc_bytes") or None,
    )
