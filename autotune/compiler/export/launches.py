"""Reads the launches of a compiled OpenCL kernel from TVM's host code: source, arguments, sizes and temporaries."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from autotune.compiler.opencl_c import Image, buffer_bytes, images, improved_source
from autotune.compiler.target import Limits
from autotune.errors import AutotuneError

_ARGUMENT_SLOT, _DATA_FIELD = 15, 1  # `tvm_struct_get`: value of an argument, data of a tensor.
_LOCAL = re.compile(r"__local\s+(\w+?)(\d*)\s+\w+\[(\d+)\]")
_LOCAL_BYTES = {
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "half": 2,
    "int": 4,
    "uint": 4,
    "float": 4,
    "long": 8,
    "double": 8,
}
_EXTENSIONS = re.compile(r"#pragma OPENCL EXTENSION (\w+)\s*: enable")


@dataclass(frozen=True)
class Argument:
    """An argument of a device function.

    Attributes:
        kind: `operand` or `temporary` (a buffer, given by its number), or the type of a scalar.
        value: The number of the buffer, or the scalar.
        image: How the function reads the buffer as an image, if the device has images.
    """

    kind: str
    value: int | float
    image: Image | None = None


@dataclass(frozen=True)
class Launch:
    """A device function to launch, with its sizes in work-items."""

    function: str
    arguments: tuple[Argument, ...]
    work: tuple[int, ...]
    group: tuple[int, ...]
    dynamic_local_bytes: int


@dataclass(frozen=True)
class OpenCLProgram:
    """A kernel in the form that OpenCL runs.

    Attributes:
        source: OpenCL C of all its device functions.
        launches: Its launches, in order.
        temporaries: Size in bytes of each buffer besides the operands.
        local_memory_bytes: Most local memory that a launch uses.
        extensions: OpenCL extensions that the source enables.
    """

    source: str
    launches: tuple[Launch, ...]
    temporaries: tuple[int, ...]
    local_memory_bytes: int
    extensions: tuple[str, ...]

    @property
    def work_group_size(self) -> int:
        """Number of work-items in the largest work-group."""
        return max(math.prod(launch.group) for launch in self.launches)

    @property
    def work_item_sizes(self) -> tuple[int, int, int]:
        """Most work-items of a work-group in each dimension."""
        padded = [(*launch.group, 1, 1)[:3] for launch in self.launches]
        x, y, z = (max(sizes) for sizes in zip(*padded, strict=True))
        return x, y, z

    def beyond(self, limits: Limits, operand_bytes: int) -> str:
        """Returns the reason why a device with these limits cannot run all launches; an empty string if it can.

        Args:
            limits: The device's limits.
            operand_bytes: Size of the largest operand.
        """
        groups = (launch.group for launch in self.launches)
        largest = max((operand_bytes, *self.temporaries))
        refused = (limits.refused(one, self.local_memory_bytes, largest) for one in groups)
        if first := next(filter(None, refused), ""):
            return first
        if "cl_khr_fp16" in self.extensions and not limits.fp16:
            return "half precision, which the device does not have"
        return ""


def opencl_program(name: str, program: Any, target: Any) -> OpenCLProgram:
    """Compiles a scheduled kernel for OpenCL, up to its source.

    Args:
        name: The kernel's name, with which its device functions' names begin.
        program: A scheduled `tvm.IRModule` with one function.
        target: An OpenCL `tvm.target.Target` with its host.

    Raises:
        AutotuneError: The kernel does something on the host that a launch table cannot express.
    """
    import tvm
    from tvm import tirx
    from tvm.tirx.build import split_host_device_mods

    lowered = tirx.transform.BindTarget(target.with_host(target.host))(program)
    pipeline, _, finish_device = tirx.get_tir_pipeline("default")  # The pipeline of `tvm.compile`.
    lowered = pipeline(lowered)
    host, devices = split_host_device_mods(lowered)
    if len(devices) != 1:
        raise AutotuneError(f"{name} runs on {len(devices)} kinds of devices at once, not on one")
    (device,) = devices.values()
    with improved_source(program):
        generated = tvm.get_global_func("target.build.opencl")(finish_device()(device), target)
    source = str(generated.inspect_source())
    parameters = {str(gv.name_hint): len(f.params) for gv, f in device.functions.items()}
    (entry,) = host.functions.values()
    reader = _HostReader(name, entry, parameters)
    reader.read(entry.body)
    launches = tuple(_with_images(launch, source) for launch in reader.launches)
    # TVM writes this line before each function.
    fixed = max(_local_bytes(part) for part in source.split("// Function: "))
    dynamic = max(launch.dynamic_local_bytes for launch in reader.launches)
    return OpenCLProgram(
        source,
        launches,
        tuple(reader.temporaries),
        fixed + dynamic,
        tuple(sorted(set(_EXTENSIONS.findall(source)))),
    )


def _with_images(launch: Launch, source: str) -> Launch:
    """Returns a launch with the images that its function's source declares."""
    found = images(source, launch.function)
    arguments = [replace(one, image=found.get(at)) for at, one in enumerate(launch.arguments)]
    return replace(launch, arguments=tuple(arguments))


def _local_bytes(source: str) -> int:
    """Returns the local memory in bytes that the functions in a source declare."""
    return sum(
        _LOCAL_BYTES[base] * int(lanes or 1) * int(count)
        for base, lanes, count in _LOCAL.findall(source)
    )


class _HostReader:
    """Reads the host function of one kernel, statement by statement.

    Args:
        name: The kernel's name, for messages.
        function: The host's `tvm.tirx.PrimFunc`.
        parameters: Number of parameters of each device function, by name.
    """

    def __init__(self, name: str, function: Any, parameters: dict[str, int]) -> None:
        self._name = name
        self._packed = function.params[1]
        self._parameters = parameters
        self._handles: dict[Any, int] = {}
        self._buffers: dict[Any, Argument] = {}
        self.launches: list[Launch] = []
        self.temporaries: list[int] = []

    def read(self, stmt: Any) -> None:
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            for part in stmt.seq:
                self.read(part)
        elif kind == "AttrStmt":
            self.read(stmt.body)
        elif kind == "Bind":
            self._bind(stmt)
        elif kind == "AllocBuffer":
            self._buffers[stmt.buffer] = Argument("temporary", len(self.temporaries))
            self.temporaries.append(buffer_bytes(stmt.buffer))
        elif kind == "DeclBuffer":
            self._declare(stmt)
        elif kind == "Evaluate" and _op(stmt.value) == "tirx.call_ffi_kernel":
            self._launch(stmt.value)
        elif kind == "Evaluate" and _op(stmt.value) == "tirx.tvm_call_packed":
            self._packed_call(stmt.value)
        elif kind == "IfThenElse":  # Checks of strides, unless it has a launch.
            if _launches(stmt):
                raise self._unknown("launches under a condition")
        elif kind not in ("AssertStmt", "Evaluate", "Return"):
            raise self._unknown(f"a {kind}")

    def _unknown(self, what: str) -> AutotuneError:
        return AutotuneError(
            f"{self._name} has {what} on the host, which a launch table cannot say",
            hint="export it with --format tvm, and report it",
        )

    def _bind(self, stmt: Any) -> None:
        for call in _calls(stmt.value, "tirx.tvm_struct_get"):
            if call.args[0].same_as(self._packed) and int(call.args[2]) == _ARGUMENT_SLOT:
                self._handles[stmt.var] = int(call.args[1])

    def _declare(self, stmt: Any) -> None:
        if _op(stmt.data) == "tirx.buffer_data":
            self._buffers[stmt.buffer] = self._buffer(stmt.data)
            return
        for call in _calls(stmt.data, "tirx.tvm_struct_get"):
            if int(call.args[2]) == _DATA_FIELD and call.args[0] in self._handles:
                self._buffers[stmt.buffer] = Argument("operand", self._handles[call.args[0]])
                return
        raise self._unknown(f"the buffer {stmt.buffer.name}")

    def _buffer(self, data: Any) -> Argument:
        found = self._buffers.get(data.args[0])
        if found is None:
            raise self._unknown(f"the buffer {data.args[0]}")
        return found

    def _packed_call(self, call: Any) -> None:
        name = str(call.args[0].value)
        if name != "__tvm_set_device":
            raise self._unknown(f"a call of {name}")

    def _launch(self, call: Any) -> None:
        function = str(call.args[0].value)
        taken = self._parameters[function]
        arguments = tuple(self._argument(one) for one in call.args[1 : 1 + taken])
        sizes = {"blockIdx": [1, 1, 1], "threadIdx": [1, 1, 1]}
        axes, dynamic = 1, 0
        extents = call.args[1 + taken :]
        for tag, extent in zip(call.attrs.launch_params, extents, strict=True):
            if type(extent).__name__ != "IntImm":
                raise self._unknown(f"a launch whose size is {extent}")
            if str(tag) == "tirx.use_dyn_shared_memory":
                dynamic = int(extent)
                continue
            what, _, axis = str(tag).partition(".")
            if what not in sizes or axis not in ("x", "y", "z"):
                raise self._unknown(f"the launch parameter {tag}")
            sizes[what]["xyz".index(axis)] = int(extent)
            axes = max(axes, "xyz".index(axis) + 1)
        group = tuple(sizes["threadIdx"][:axes])
        work = tuple(b * t for b, t in zip(sizes["blockIdx"][:axes], group, strict=True))
        self.launches.append(Launch(function, arguments, work, group, dynamic))

    def _argument(self, value: Any) -> Argument:
        if _op(value) == "tirx.buffer_data":
            return self._buffer(value)
        kind = type(value).__name__
        if kind in ("IntImm", "FloatImm"):
            return Argument(str(value.dtype), float(value) if kind == "FloatImm" else int(value))
        raise self._unknown(f"the argument {value}")


def _op(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))


def _calls(value: Any, op: str) -> list[Any]:
    """Returns the calls of an operator in an expression, in order."""
    if _op(value) == op:
        return [value]
    return [call for argument in getattr(value, "args", ()) for call in _calls(argument, op)]


def _launches(stmt: Any) -> bool:
    return "call_ffi_kernel" in str(stmt)
