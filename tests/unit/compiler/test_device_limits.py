"""Limits of OpenCL kernels: the device's own, or the target's where something stands in for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.compiler.native import opencl_sidecar
from autotune.compiler.runners.device_limits import with_device_limits
from autotune.compiler.runners.local_devices import opencl_fingerprint
from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.target import spaces
from autotune.compiler.target.request import TuneRequest
from autotune.compiler.target.spaces import Limits
from autotune.compiler.target.targets import find

TOLD: dict[str, Any] = {
    "max_work_group_size": 1024,
    "max_work_item_sizes": (1024, 512, 64),
    "local_mem_bytes": 49152,
    "local_mem_type": "local",
    "sub_group_size": 64,
    "native_float_vector_width": 1,
    "image2d_max": (16384, 16384),
    "image_buffer_max": 65536,
    "fp16": True,
    "compute_units": 6,
    "max_alloc_bytes": 1 << 28,
}


def _request(target: str) -> TuneRequest:
    spec = find(target)
    return TuneRequest(spec, spaces.load(spec.space_path()), "m", None, (), 1, 1)


def _device(*, stand_in: bool, **reported: Any) -> DeviceFingerprint:
    return DeviceFingerprint("d", "opencl", "1", tuple(reported.items()), stand_in)


def _limits(request: TuneRequest) -> Limits:
    assert request.space.limits is not None
    return request.space.limits


@pytest.mark.parametrize(
    ("target", "vendor", "kind", "stand_in"),
    [
        ("mali", "ARM", "gpu", False),
        ("mali", "ARM", "cpu", True),  # PoCL gives a processor's maker
        ("adreno", "QUALCOMM", "gpu", False),
        ("adreno", "Qualcomm", "cpu", True),
        ("adreno", "ARM", "gpu", True),
        ("opencl", "AuthenticAMD", "cpu", True),
        ("opencl", "ARM", "gpu", False),
    ],
)
def test_a_processor_stands_in_whoever_made_it(
    target: str, vendor: str, kind: str, stand_in: bool
) -> None:
    (reported,) = opencl_sidecar.devices()[:1]
    found = opencl_fingerprint(
        find(target), replace(reported, vendor=vendor, type=kind, name="a name")
    )
    assert found.stand_in == stand_in


def test_a_device_tells_its_own_limits() -> None:
    limits = _limits(with_device_limits(_request("adreno"), _device(stand_in=False, **TOLD)))
    assert limits == Limits(
        max_threads_per_block=1024,
        max_item_sizes=(1024, 512, 64),
        max_local_memory_bytes=49152,
        local_memory="local",
        sub_group_size=64,
        vector_width=1,
        image2d_max=(16384, 16384),
        image_buffer_max=65536,
        fp16=True,
        compute_units=6,
        max_alloc_bytes=1 << 28,
    )


def test_a_stand_in_only_narrows_what_the_target_is_assumed_to_have() -> None:
    small = {**TOLD, "local_mem_bytes": 16384, "local_mem_type": "global"}
    for target, local_memory in (("mali", "global"), ("adreno", "local"), ("opencl", "global")):
        limits = _limits(with_device_limits(_request(target), _device(stand_in=True, **small)))
        assert (limits.max_threads_per_block, limits.max_local_memory_bytes) == (256, 16384)
        assert limits.local_memory == local_memory
        assert limits.image_buffer_max == (65536 if target == "adreno" else 0)
        assert not limits.fp16


def test_without_an_answer_the_limits_are_what_any_gpu_has() -> None:
    assert _limits(with_device_limits(_request("opencl"), _device(stand_in=False))) == Limits()


def test_a_space_and_a_target_of_the_users_own_narrow_them() -> None:
    request = _request("opencl")
    request = replace(
        request,
        space=request.space.model_copy(update={"limits": Limits(max_local_memory_bytes=8192)}),
        target=replace(request.target, tvm=(*request.target.tvm, ("max_threads_per_block", 96))),
    )
    limits = _limits(with_device_limits(request, _device(stand_in=False, **TOLD)))
    assert (limits.max_threads_per_block, limits.max_local_memory_bytes) == (96, 8192)
    assert limits.sub_group_size == 64


def test_a_processor_has_none() -> None:
    request = _request("cpu")
    assert with_device_limits(request, _device(stand_in=False, cores=2)) == request
