"""Program: prints as JSON the OpenCL library that can be loaded, or null.

It is a separate program because loading a vendor's library runs its code.
"""

from __future__ import annotations

import ctypes
import json
import os

LIBRARY_VARIABLE = "AUTOTUNE_OPENCL_LIBRARY"
LIBRARIES = ("libOpenCL.so.1", "libOpenCL.so")


def find() -> str | None:
    """Returns the first library that can be loaded: the one that the user names, or else the usual ones."""
    chosen = os.environ.get(LIBRARY_VARIABLE)
    for name in LIBRARIES if chosen is None else (chosen,):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


if __name__ == "__main__":
    print(json.dumps(find()))
