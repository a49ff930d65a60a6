"""An emulated phone that the real adb server sees."""

from autotune.emulator.phone import model_phone, userland
from autotune.emulator.phone.model_phone import ModelPhone
from autotune.emulator.phone.phone import EmulatedPhone, serve

__all__ = [
    "EmulatedPhone",
    "model_phone",
    "ModelPhone",
    "serve",
    "userland",
]
