"""This machine's devices, and the runner of a target on them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.compiler.runners.qemu_runner import QemuRunner
from autotune.compiler.runners.runner import MODEL_KIND, DeviceFingerprint, LocalRunner, Runner
from autotune.compiler.target import ARM_TRIPLE, TargetSpec, cores, kernel_threads

if TYPE_CHECKING:
    from autotune.compiler.native import OpenCLDevice


def runner_for(target: TargetSpec, cpus: Sequence[int] = ()) -> Runner:
    """Returns the runner of a target on this machine; a stand-in if the real device is absent.

    Args:
        target: The target to measure.
        cpus: This host's cores that kernels may use; empty for all.

    Raises:
        ToolchainError: Something that the target needs here (an OpenCL driver, qemu, a cross compiler) is missing.
    """
    if target.family == "opencl":
        return LocalRunner(_opencl_device(target))
    if ARM_TRIPLE in target.triple and platform.machine() != "aarch64":
        return QemuRunner()
    return LocalRunner(host_device(cpus), cpus=cpus)


def host_device(cpus: Sequence[int] = ()) -> DeviceFingerprint:
    """Returns the fingerprint of this host's processor, or of some of its cores."""
    return DeviceFingerprint(
        _processor_name(),
        "cpu",
        "",
        (
            ("cores", len(cpus) or cores()),
            ("threads", len(cpus) or kernel_threads()),
            ("machine", platform.machine()),
            ("system", platform.system()),
        ),
        stand_in=False,
    )


def _opencl_device(target: TargetSpec) -> DeviceFingerprint:
    from autotune.compiler.native import opencl_sidecar

    opencl_sidecar.ensure()
    return opencl_fingerprint(target, opencl_sidecar.devices()[0])


def opencl_fingerprint(target: TargetSpec, found: OpenCLDevice) -> DeviceFingerprint:
    """Returns the fingerprint of an OpenCL device for a target; a stand-in unless the target's maker made it."""
    vendor = f"{found.vendor} {found.name}".lower()
    wanted = {"adreno": ("qualcomm", "adreno"), "mali": ("mali", "arm ")}.get(
        dict(target.tvm).get("device", ""), ()
    )
    # PoCL may report the processor's maker as the vendor, and that maker may make graphics processors too.
    real = found.type != "cpu" and (not wanted or any(word in vendor for word in wanted))
    return DeviceFingerprint(
        found.name,
        "opencl",
        f"{found.platform}, {found.driver_version}",
        (
            ("vendor", found.vendor),
            ("type", found.type),
            ("compute_units", found.compute_units),
            ("max_work_group_size", found.max_work_group_size),
            ("local_mem_bytes", found.local_mem_bytes),
            ("local_mem_type", found.local_mem_type),
            ("max_work_item_sizes", found.max_work_item_sizes),
            ("sub_group_size", found.sub_group_size),
            ("native_float_vector_width", found.native_float_vector_width),
            ("image2d_max", found.image2d_max),
            ("image_buffer_max", found.image_buffer_max),
            ("fp16", found.fp16),
            ("max_alloc_bytes", found.max_alloc_bytes),
        ),
        stand_in=not real,
    )


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def stand_in_notice(target: TargetSpec, device: DeviceFingerprint) -> str | None:
    """Returns a message that times are not the target's own; None if they are."""
    if not device.stand_in:
        return None
    if device.kind == MODEL_KIND:
        return f"STAND-IN: no {target.name} device here; {device.name} predicted the times, and no kernel ran"
    if device.kind.startswith("rpc"):
        return f"STAND-IN: key '{device.name}' is no {target.name} device but {device.driver}"
    how = (
        "emulated by qemu-user; its times are not those of a phone"
        if device.kind == "qemu-user"
        else ("this machine's OpenCL device" if device.kind == "opencl" else "this host")
    )
    return f"STAND-IN: no {target.name} device here; measured on {device.name} ({how})"
