"""Android's thermal service on an emulated phone: `dumpsys thermalservice`, based on the model's trip points.

The text follows AOSP's ThermalManagerService.dump (Android 10 and later). Earlier phones have no such service.
"""

from __future__ import annotations

from autotune.emulator.kernel.kernel import KernelFile
from autotune.emulator.model import Soc

PATH = "/sys/kernel/autotune/thermalservice"
PROGRAM = "dumpsys"
FIRST_SDK = 29
_MOST = 5
"""EMERGENCY. At the next level a phone shuts down."""
_SKIN = 3
"""Temperature.TYPE_SKIN."""

SCRIPT = f"""#!/system/bin/sh
if [ "$1" = thermalservice ] && [ -r {PATH} ]; then cat {PATH}; else echo "Can't find service: $1" >&2; fi
"""


def thermal_service_files(soc: Soc) -> dict[str, KernelFile]:
    """Returns the file that `dumpsys` shows; none if the phone's Android has no such service."""
    android = soc.profile.android
    if android is None or android.sdk < FIRST_SDK:
        return {}
    return {PATH: KernelFile(lambda: _dump(soc))}


def _dump(soc: Soc) -> str:
    status = min(soc.throttle_level(), _MOST)
    skin = f"Temperature{{mValue={soc.celsius():.1f}, mType={_SKIN}, mName=skin, mStatus={status}}}"
    return (
        f"IsStatusOverride: false\nThermalEventListeners:\n\tcallbacks: 1\n"
        f"ThermalStatusListeners:\n\tcallbacks: 1\nThermal Status: {status}\n"
        f"Cached temperatures:\n\t{skin}\nHAL Ready: true\n"
    )
