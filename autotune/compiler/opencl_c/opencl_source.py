"""Passes over the OpenCL source that TVM generates: vectors, half precision, image reads, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.compiler.opencl_c.aligned_vectors import with_aligned_vectors
from autotune.compiler.opencl_c.half_storage import half_buffers, note_writers, with_half_storage
from autotune.compiler.opencl_c.image_reads import image_operands, with_image_reads
from autotune.compiler.opencl_c.vector_stores import group_sizes, with_vector_stores

_CALLBACK = "tvm_callback_opencl_postproc"
_SELECT = re.compile(r"\bselect\(")
_CHOOSE = "#define AUTOTUNE_SELECT(no, yes, condition) select(no, yes, (condition) != 0)\n"


def with_conditions_of_vectors(source: str) -> str:
    """Returns the source with selections of vectors that also take a 1 for true.

    OpenCL selects by the sign bit of each element. TVM writes 1 where one condition is for a whole vector.
    """
    chosen = _SELECT.sub("AUTOTUNE_SELECT(", source)
    return source if chosen == source else _CHOOSE + chosen


@contextmanager
def improved_source(module: Any, *, images: bool = True) -> Iterator[None]:
    """While open, rewrites the OpenCL source of a scheduled `tvm.IRModule` as TVM compiles it.

    Args:
        module: The scheduled program.
        images: Whether operands are read as images if the schedule says so.
    """
    import tvm_ffi

    halves, operands = half_buffers(module), image_operands(module) if images else {}
    sizes = group_sizes(module)
    writers: dict[tuple[str, str], str] = {}

    def rewritten(source: str, target: object) -> str:
        source = with_aligned_vectors(source)
        note_writers(source, halves, writers)  # TVM passes each kernel separately.
        source = with_half_storage(source, halves)
        source = with_vector_stores(with_image_reads(source, operands), sizes)
        return with_conditions_of_vectors(source)

    earlier = tvm_ffi.get_global_func(_CALLBACK, allow_missing=True)
    tvm_ffi.register_global_func(_CALLBACK, rewritten, override=True)
    try:
        yield
    finally:
        if earlier is None:
            tvm_ffi.registry.remove_global_func(_CALLBACK)
        else:
            tvm_ffi.register_global_func(_CALLBACK, earlier, override=True)
