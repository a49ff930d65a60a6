"""Convolutions and matmuls with CLBlast 1.5 (Debian's libclblast1); convolutions use im2col and GEMM.

The C interface is called, with a context and a queue of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
from ctypes.util import find_library
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.workloads import Conv2d, Kernel, Matmul

Array = NDArray[Any]
Launch = Callable[[], None]

_ROW_MAJOR, _PLAIN, _TRANSPOSED, _CORRELATION = 101, 111, 112, 151
_ALL_DEVICES, _READ_WRITE, _BLOCKING = 0xFFFFFFFF, 1, 1
_DEVICE_NAME, _MOST = 0x102B, 16


def available() -> bool:
    """Whether the library is installed."""
    return _library() is not None


def _library() -> str | None:
    return os.environ.get("CLBLAST_LIBRARY") or find_library("clblast")


class ClBlast:
    """CLBlast on an OpenCL device.

    Args:
        name: Name of the device.
    """

    def __init__(self, name: str) -> None:
        self._blas = ctypes.CDLL(_library() or "libclblast.so.1")
        self._cl = ctypes.CDLL(
            os.environ.get("AUTOTUNE_OPENCL_LIBRARY") or find_library("OpenCL") or "libOpenCL.so.1"
        )
        for function in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
            getattr(self._cl, function).restype = c_void_p
        device, code = self._device(name), c_int()
        context = self._cl.clCreateContext(None, c_uint(1), byref(device), None, None, byref(code))
        self._checked(code.value)
        self._context = c_void_p(context)
        queue = self._cl.clCreateCommandQueue(self._context, device, c_uint64(0), byref(code))
        self._checked(code.value)
        self._queue = c_void_p(queue)

    def _device(self, name: str) -> c_void_p:
        platforms, devices, count, others = (
            (c_void_p * _MOST)(),
            (c_void_p * _MOST)(),
            c_uint(),
            c_uint(),
        )
        self._checked(self._cl.clGetPlatformIDs(c_uint(_MOST), platforms, byref(count)))
        for platform in platforms[: count.value]:
            found = self._cl.clGetDeviceIDs(
                c_void_p(platform), c_uint64(_ALL_DEVICES), c_uint(_MOST), devices, byref(others)
            )
            for device in devices[: others.value if found == 0 else 0]:
                text = create_string_buffer(1024)
                self._checked(
                    self._cl.clGetDeviceInfo(
                        c_void_p(device), c_uint(_DEVICE_NAME), c_size_t(len(text)), text, None
                    )
                )
                if text.value.decode().strip() == name:
                    return c_void_p(device)
        raise RuntimeError(f"CLBlast's OpenCL library has no device {name}")

    @staticmethod
    def _checked(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"OpenCL or CLBlast returned {code}")

    def upload(self, array: Array) -> c_void_p:
        """Returns a device buffer with the content of an array."""
        array, code = np.ascontiguousarray(array), c_int()
        buffer = c_void_p(
            self._cl.clCreateBuffer(
                self._context, c_uint64(_READ_WRITE), c_size_t(array.nbytes), None, byref(code)
            )
        )
        self._checked(code.value)
        self._move(self._cl.clEnqueueWriteBuffer, buffer, array)
        return buffer

    def download(self, buffer: c_void_p, shape: Sequence[int]) -> Array:
        """Returns the content of a buffer."""
        array = np.empty(shape, np.float32)
        self._move(self._cl.clEnqueueReadBuffer, buffer, array)
        return array

    def spoil(self, buffer: c_void_p, shape: Sequence[int]) -> None:
        """Fills a buffer with NaN, which no result contains."""
        spoilt = np.full(shape, np.nan, np.float32)
        self._move(self._cl.clEnqueueWriteBuffer, buffer, spoilt)

    def _move(self, call: Any, buffer: c_void_p, array: Array) -> None:
        data = c_void_p(array.ctypes.data)
        self._checked(
            call(
                self._queue, buffer, c_uint(_BLOCKING), c_size_t(0), c_size_t(array.nbytes), data,
                c_uint(0), None, None,
            )
        )  # fmt: skip

    def _clear(self, buffer: c_void_p, size: int) -> None:
        self._checked(
            self._cl.clEnqueueFillBuffer(
                self._queue, buffer, byref(c_float(0)), c_size_t(4), c_size_t(0), c_size_t(size),
                c_uint(0), None, None,
            )
        )  # fmt: skip

    def free(self, buffers: Sequence[c_void_p]) -> None:
        """Releases buffers."""
        for buffer in buffers:
            self._cl.clReleaseMemObject(buffer)

    def finish(self) -> None:
        """Waits until all queued work has run."""
        self._checked(self._cl.clFinish(self._queue))

    def ways(
        self, kernel: Kernel, inputs: Sequence[Array]
    ) -> tuple[list[Launch], c_void_p, list[c_void_p]]:
        """Returns the ways to compute a kernel.

        Returns:
            A function to launch each way, the buffer of the result, and all buffers.
        """
        output = kernel.outputs[0]
        operands = [self.upload(array) for array in inputs]
        result = self.upload(np.full(output.shape, np.nan, np.float32))
        operator = kernel.operator
        if isinstance(operator, Matmul):
            launch = self._matmul(operator, kernel.role, operands, result)
            return [launch], result, [*operands, result]
        assert isinstance(operator, Conv2d)
        ways, added = self._convolution(operator, kernel.role, operands, result)
        return ways, result, [*operands, result, *added]

    def _matmul(
        self, mm: Matmul, role: str, operands: Sequence[c_void_p], result: c_void_p
    ) -> Launch:
        a, b = operands
        if role == "forward":
            return lambda: self._gemm(_PLAIN, _TRANSPOSED, mm.m, mm.n, mm.k, a, b, result)
        if role == "data_grad":
            return lambda: self._gemm(_PLAIN, _PLAIN, mm.m, mm.k, mm.n, a, b, result)
        x, dy = operands
        return lambda: self._gemm(_TRANSPOSED, _PLAIN, mm.n, mm.k, mm.m, dy, x, result)

    def _gemm(
        self, way_a: int, way_b: int, m: int, n: int, k: int, a: c_void_p, b: c_void_p, c: c_void_p,
        *, offsets: tuple[int, int, int] = (0, 0, 0), beta: float = 0.0,
    ) -> None:  # fmt: skip
        """Computes c[m, n] = a x b + beta c; each operand may be stored transposed."""
        self._checked(
            self._blas.CLBlastSgemm(
                c_int(_ROW_MAJOR), c_int(way_a), c_int(way_b), c_size_t(m), c_size_t(n),
                c_size_t(k), c_float(1), a, c_size_t(offsets[0]),
                c_size_t(k if way_a == _PLAIN else m), b, c_size_t(offsets[1]),
                c_size_t(n if way_b == _PLAIN else k), c_float(beta), c, c_size_t(offsets[2]),
                c_size_t(n), byref(self._queue), None,
            )
        )  # fmt: skip

    def _batched(
        self, way_a: int, way_b: int, m: int, n: int, k: int, a: c_void_p, b: c_void_p, c: c_void_p,
        *, strides: tuple[int, int, int], batch: int,
    ) -> None:  # fmt: skip
        """Computes the same for a batch, without beta."""
        self._checked(
            self._blas.CLBlastSgemmStridedBatched(
                c_int(_ROW_MAJOR), c_int(way_a), c_int(way_b), c_size_t(m), c_size_t(n),
                c_size_t(k), c_float(1), a, c_size_t(0), c_size_t(k if way_a == _PLAIN else m),
                c_size_t(strides[0]), b, c_size_t(0), c_size_t(n if way_b == _PLAIN else k),
                c_size_t(strides[1]), c_float(0), c, c_size_t(0), c_size_t(n),
                c_size_t(strides[2]), c_size_t(batch), byref(self._queue), None,
            )
        )  # fmt: skip

    def _convolution(
        self, conv: Conv2d, role: str, operands: Sequence[c_void_p], result: c_void_p
    ) -> tuple[list[Launch], list[c_void_p]]:
        depth, area = conv.c * conv.r * conv.s, conv.oh * conv.ow
        image, gradient = conv.c * conv.h * conv.w, conv.k * area
        window = [
            c_size_t(one)
            for one in (
                conv.c, conv.h, conv.w, conv.r, conv.s, *conv.pad, *conv.stride, *conv.dilation
            )
        ]  # fmt: skip
        plain = (conv.r, conv.s, conv.stride, conv.pad) == (1, 1, (1, 1), (0, 0))
        a, b = operands
        columns = b if plain else self.upload(np.zeros((conv.n, depth, area), np.float32))
        added = [] if plain else [columns]

        def gathered(x: c_void_p) -> c_void_p:
            if plain:
                return x
            for n in range(conv.n):
                self._checked(
                    self._blas.CLBlastSim2col(
                        c_int(_CORRELATION), *window, x, c_size_t(n * image), columns,
                        c_size_t(n * depth * area), byref(self._queue), None,
                    )
                )  # fmt: skip
            return columns

        if role == "forward":

            def in_one_call() -> None:
                self._checked(
                    self._blas.CLBlastSconvgemm(
                        c_int(_CORRELATION), *window, c_size_t(conv.k), c_size_t(conv.n), a,
                        c_size_t(0), b, c_size_t(0), result, c_size_t(0), byref(self._queue), None,
                    )
                )  # fmt: skip

            def forward() -> None:
                self._batched(
                    _PLAIN, _PLAIN, conv.k, area, depth, b, gathered(a), result,
                    strides=(0, depth * area, gradient), batch=conv.n,
                )  # fmt: skip

            return [in_one_call, forward], added
        if role == "data_grad":
            dy, weight = operands
            into = result if plain else columns

            def data_grad() -> None:
                self._batched(
                    _TRANSPOSED, _PLAIN, depth, area, conv.k, weight, dy, into,
                    strides=(0, gradient, depth * area), batch=conv.n,
                )  # fmt: skip
                if plain:
                    return
                self._clear(result, 4 * conv.n * image)  # col2im adds to the existing content
                for n in range(conv.n):
                    self._checked(
                        self._blas.CLBlastScol2im(
                            c_int(_CORRELATION), *window, columns, c_size_t(n * depth * area),
                            result, c_size_t(n * image), byref(self._queue), None,
                        )
                    )  # fmt: skip

            return [data_grad], added
        x, dy = operands
        parts = self.upload(np.zeros((conv.n, conv.k * depth), np.float32))
        ones = self.upload(np.ones(conv.n, np.float32))

        def image_by_image() -> None:
            under = gathered(x)
            for n in range(conv.n):
                self._gemm(
                    _PLAIN, _TRANSPOSED, conv.k, depth, area, dy, under, result,
                    offsets=(n * gradient, n * depth * area, 0), beta=float(n > 0),
                )  # fmt: skip

        def in_parts() -> None:
            self._batched(
                _PLAIN, _TRANSPOSED, conv.k, depth, area, dy, gathered(x), parts,
                strides=(gradient, depth * area, conv.k * depth), batch=conv.n,
            )  # fmt: skip
            self._gemm(_PLAIN, _PLAIN, 1, conv.k * depth, conv.n, ones, parts, result)

        return [image_by_image, in_parts], [*added, parts, ones]
