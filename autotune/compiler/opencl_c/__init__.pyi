from .image_reads import Image, images
from .launch_limits import HINT, BeyondLimitsError, buffer_bytes, checked
from .opencl_source import improved_source

__all__ = [
    "BeyondLimitsError",
    "buffer_bytes",
    "checked",
    "HINT",
    "Image",
    "images",
    "improved_source",
]
