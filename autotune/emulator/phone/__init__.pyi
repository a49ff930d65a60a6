from . import model_phone, userland
from .model_phone import ModelPhone
from .phone import EmulatedPhone, serve

__all__ = [
    "EmulatedPhone",
    "model_phone",
    "ModelPhone",
    "serve",
    "userland",
]
