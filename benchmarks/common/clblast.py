"""Convolutions and matmuls with CLBlast 1.5 (Debian's libclblast1); convolutions use im2col and GEMM.

The C interface is called, with a context and a queue of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
from ctypes.util import find_library
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class Product:
    """A product of matrices, c[m, n] = a[m, k] x b[k, n]. Each factor may be stored transposed.

    Attributes:
        way_a: How the first factor is stored.
        way_b: How the second factor is stored.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.
    """

    way_a: int
    way_b: int
    m: int
    n: int
    k: int

    @property
    def row_a(self) -> int:
        """Numbers in a row of the first factor, as it is stored."""
        return self.k if self.way_a == _PLAIN else self.m

    @property
    def row_b(self) -> int:
        """Numbers in a row of the second factor, as it is stored."""
        return self.n if self.way_b == _PLAIN else self.k

    def shape(self) -> tuple[Any, ...]:
        """Returns the first arguments of CLBlast's functions for products."""
        ways = (c_int(_ROW_MAJOR), c_int(self.way_a), c_int(self.way_b))
        return (*ways, c_size_t(self.m), c_size_t(self.n), c_size_t(self.k))


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

    def clear(self, buffer: c_void_p, size: int) -> None:
        """Fills the first bytes of a buffer with zeros."""
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
            launch = _matmul(self, operator, kernel.role, operands, result)
            return [launch], result, [*operands, result]
        assert isinstance(operator, Conv2d)
        convolution = _Convolution(self, operator, result)
        a, b = operands
        ways = convolution.ways(kernel.role, a, b)
        return ways, result, [*operands, result, *convolution.buffers]

    def gemm(
        self, product: Product, a: c_void_p, b: c_void_p, c: c_void_p,
        *, offsets: tuple[int, int, int] = (0, 0, 0), beta: float = 0.0,
    ) -> None:  # fmt: skip
        """Computes c = a x b + beta c; operands begin at offsets in their buffers."""
        self.call(
            "CLBlastSgemm", *product.shape(), c_float(1), a, c_size_t(offsets[0]),
            c_size_t(product.row_a), b, c_size_t(offsets[1]), c_size_t(product.row_b),
            c_float(beta), c, c_size_t(offsets[2]), c_size_t(product.n),
        )  # fmt: skip

    def batched(
        self, product: Product, a: c_void_p, b: c_void_p, c: c_void_p,
        *, strides: tuple[int, int, int], batch: int,
    ) -> None:  # fmt: skip
        """Computes c = a x b for a batch; operands of a sample begin a stride after those of the last."""
        self.call(
            "CLBlastSgemmStridedBatched", *product.shape(), c_float(1), a, c_size_t(0),
            c_size_t(product.row_a), c_size_t(strides[0]), b, c_size_t(0), c_size_t(product.row_b),
            c_size_t(strides[1]), c_float(0), c, c_size_t(0), c_size_t(product.n),
            c_size_t(strides[2]), c_size_t(batch),
        )  # fmt: skip

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of CLBlast on the queue."""
        self._checked(getattr(self._blas, name)(*arguments, byref(self._queue), None))


def _matmul(
    blast: ClBlast, mm: Matmul, role: str, operands: Sequence[c_void_p], result: c_void_p
) -> Launch:
    if role == "forward":
        product = Product(_PLAIN, _TRANSPOSED, mm.m, mm.n, mm.k)
    elif role == "data_grad":
        product = Product(_PLAIN, _PLAIN, mm.m, mm.k, mm.n)
    else:
        product = Product(_TRANSPOSED, _PLAIN, mm.n, mm.k, mm.m)
        operands = operands[::-1]
    a, b = operands
    return lambda: blast.gemm(product, a, b, result)


class _Convolution:
    """A convolution as im2col and GEMM.

    Args:
        blast: The library.
        conv: The convolution.
        result: The buffer of the result.

    Attributes:
        buffers: Buffers beside the operands and the result.
    """

    def __init__(self, blast: ClBlast, conv: Conv2d, result: c_void_p) -> None:
        self._blast, self._conv, self._result = blast, conv, result
        self._depth, self._area = conv.c * conv.r * conv.s, conv.oh * conv.ow
        self._image, self._gradient = conv.c * conv.h * conv.w, conv.k * self._area
        self._window = [
            c_size_t(one)
            for one in (
                conv.c, conv.h, conv.w, conv.r, conv.s, *conv.pad, *conv.stride, *conv.dilation
            )
        ]  # fmt: skip
        self.buffers: list[c_void_p] = []
        self._columns: c_void_p | None = None
        """None if the image has the layout of its columns."""
        if (conv.r, conv.s, conv.stride, conv.pad) != (1, 1, (1, 1), (0, 0)):
            self._columns = self._buffer((conv.n, self._depth, self._area))

    def ways(self, role: str, a: c_void_p, b: c_void_p) -> list[Launch]:
        """Returns a function to launch each way to compute a role."""
        if role == "forward":
            return [partial(self._in_one_call, a, b), partial(self._forward, a, b)]
        if role == "data_grad":
            return [partial(self._data_grad, a, b)]
        parts = self._buffer((self._conv.n, self._conv.k * self._depth))
        ones = self._blast.upload(np.ones(self._conv.n, np.float32))
        self.buffers.append(ones)
        return [partial(self._image_by_image, a, b), partial(self._in_parts, a, b, parts, ones)]

    def _in_one_call(self, x: c_void_p, weight: c_void_p) -> None:
        conv, start = self._conv, c_size_t(0)
        self._blast.call(
            "CLBlastSconvgemm", c_int(_CORRELATION), *self._window, c_size_t(conv.k),
            c_size_t(conv.n), x, start, weight, start, self._result, start,
        )  # fmt: skip

    def _forward(self, x: c_void_p, weight: c_void_p) -> None:
        self._blast.batched(
            Product(_PLAIN, _PLAIN, self._conv.k, self._area, self._depth),
            weight, self._gathered(x), self._result,
            strides=(0, self._depth * self._area, self._gradient), batch=self._conv.n,
        )  # fmt: skip

    def _data_grad(self, dy: c_void_p, weight: c_void_p) -> None:
        self._blast.batched(
            Product(_TRANSPOSED, _PLAIN, self._depth, self._area, self._conv.k),
            weight, dy, self._result if self._columns is None else self._columns,
            strides=(0, self._gradient, self._depth * self._area), batch=self._conv.n,
        )  # fmt: skip
        if self._columns is not None:
            self._scatter(self._columns)

    def _image_by_image(self, x: c_void_p, dy: c_void_p) -> None:
        columns = self._gathered(x)
        product = Product(_PLAIN, _TRANSPOSED, self._conv.k, self._depth, self._area)
        for n in range(self._conv.n):
            self._blast.gemm(
                product, dy, columns, self._result,
                offsets=(n * self._gradient, n * self._depth * self._area, 0), beta=float(n > 0),
            )  # fmt: skip

    def _in_parts(self, x: c_void_p, dy: c_void_p, parts: c_void_p, ones: c_void_p) -> None:
        weights = self._conv.k * self._depth
        self._blast.batched(
            Product(_PLAIN, _TRANSPOSED, self._conv.k, self._depth, self._area),
            dy, self._gathered(x), parts,
            strides=(self._gradient, self._depth * self._area, weights), batch=self._conv.n,
        )  # fmt: skip
        self._blast.gemm(
            Product(_PLAIN, _PLAIN, 1, weights, self._conv.n), ones, parts, self._result
        )

    def _buffer(self, shape: tuple[int, ...]) -> c_void_p:
        buffer = self._blast.upload(np.zeros(shape, np.float32))
        self.buffers.append(buffer)
        return buffer

    def _gathered(self, x: c_void_p) -> c_void_p:
        """Returns the columns of images."""
        if self._columns is None:
            return x
        for n in range(self._conv.n):
            self._blast.call(
                "CLBlastSim2col", c_int(_CORRELATION), *self._window, x, c_size_t(n * self._image),
                self._columns, c_size_t(n * self._depth * self._area),
            )  # fmt: skip
        return self._columns

    def _scatter(self, columns: c_void_p) -> None:
        """Adds columns up to images in the result."""
        self._blast.clear(
            self._result, 4 * self._conv.n * self._image
        )  # col2im adds to the content
        for n in range(self._conv.n):
            self._blast.call(
                "CLBlastScol2im", c_int(_CORRELATION), *self._window, columns,
                c_size_t(n * self._depth * self._area), self._result, c_size_t(n * self._image),
            )  # fmt: skip
