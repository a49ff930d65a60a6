"""Passes over the OpenCL C that TVM generates: aligned vectors, half precision, images, vector stores, launch limits."""

from autotune.compiler.opencl_c.image_reads import Image, images
from autotune.compiler.opencl_c.launch_limits import HINT, BeyondLimitsError, buffer_bytes, checked
from autotune.compiler.opencl_c.opencl_source import improved_source

__all__ = [
    "BeyondLimitsError",
    "buffer_bytes",
    "checked",
    "HINT",
    "Image",
    "images",
    "improved_source",
]
