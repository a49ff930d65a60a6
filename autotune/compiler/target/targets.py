"""The targets that a user can name, and the TVM target of each."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from autotune.compiler.target import spaces
from autotune.compiler.target.host import cores
from autotune.errors import UsageError, choices
from autotune.reading import SMALL, read_json

_STDERR = 2
Family = Literal["cpu", "opencl"]
ARM_TRIPLE = "aarch64-linux-gnu"
# TVM's names for an OpenCL device's limits. There are two for the number of work-items of a work-group.
_WORK_ITEMS = ("max_threads_per_block", "max_num_threads")
_LOCAL_MEMORY = "max_shared_memory_per_block"
_SUB_GROUP = "thread_warp_size"
# Attributes that a target file may set: those that describe the device. TVM and LLVM have others, some of which
# load code (`cl-opt`, `libs`).
_WHOLE = range(-1, 1 << 31)
_ATTRIBUTES: Mapping[str, type | range] = {
    "kind": str,
    "tag": str,
    "keys": list,
    "device": str,
    "model": str,
    "mcpu": str,
    "mtriple": str,
    "mattr": list,
    "mabi": str,
    "mfloat-abi": str,
    "num-cores": range(1, 4097),
    "vector-width": _WHOLE,
    "supports_fp16": _WHOLE,
    "texture_spatial_limit": _WHOLE,
    "texture_depth_limit": _WHOLE,
    "image_base_address_alignment": _WHOLE,
    "max_function_args": _WHOLE,
    **dict.fromkeys((*_WORK_ITEMS, _LOCAL_MEMORY, _SUB_GROUP), _WHOLE),
}
_WORD = re.compile(r"[+\-]?[\w.,/()@ -]{0,100}")


@dataclass(frozen=True)
class TargetSpec:
    """A named target, before TVM checks it.

    Attributes:
        name: Its name on the command line, after `--target`.
        family: `cpu` for LLVM code, `opencl` for OpenCL C.
        space_file: Name of its search-space file in `search_spaces/`.
        description: One line for `autotune targets`.
        triple: LLVM triple of the host code; empty means this machine's.
        tvm: TVM target as a dictionary; `tvm_target` adds host features and limits.
    """

    name: str
    family: Family
    space_file: str
    description: str
    triple: str = ""
    tvm: tuple[tuple[str, Any], ...] = ()

    @property
    def processor(self) -> str:
        """The kind of processor that its schedules are for, as in records."""
        return " ".join(filter(None, (self.family, self.triple)))

    def space_path(self) -> Path:
        return spaces.folder() / self.space_file


TARGETS: tuple[TargetSpec, ...] = (
    TargetSpec(
        "cpu",
        "cpu",
        "host_cpu.toml",
        "this host's processor: LLVM, its real features and cores",
        tvm=(("kind", "llvm"),),
    ),
    TargetSpec(
        "arm-cpu",
        "cpu",
        "arm_cpu.toml",
        "aarch64 phone or board processor: LLVM, checked under qemu-user without a device",
        triple=ARM_TRIPLE,
        tvm=(
            ("kind", "llvm"),
            ("mtriple", ARM_TRIPLE),
            ("mattr", ("+neon",)),
            ("num-cores", 4),
        ),
    ),
    TargetSpec(
        "adreno",
        "opencl",
        "adreno.toml",
        "Qualcomm Adreno GPU: OpenCL C",
        tvm=(("kind", "opencl"), ("device", "adreno")),
    ),
    TargetSpec(
        "mali",
        "opencl",
        "mali.toml",
        "Arm Mali GPU: OpenCL C",
        tvm=(("kind", "opencl"), ("device", "mali")),
    ),
    TargetSpec(
        "opencl",
        "opencl",
        "opencl_gpu.toml",
        "any OpenCL 1.2 device: OpenCL C",
        tvm=(("kind", "opencl"),),
    ),
)


def find(name: str) -> TargetSpec:
    """Looks a target up by name.

    Raises:
        UsageError: There is no such target.
    """
    for target in TARGETS:
        if target.name == name:
            return target
    raise UsageError(
        f"unknown target {name!r}",
        hint=f"{choices(name, (t.name for t in TARGETS), 'known:')}; or give --target-json FILE",
    )


def from_json(path: Path) -> TargetSpec:
    """Reads a TVM target from a JSON file: an object with `kind` `llvm` or `opencl`, or a tag.

    Raises:
        UsageError: The file cannot be read, is not a target of those kinds, names a processor that is
            neither this machine's nor aarch64 Linux, or TVM refuses it.
    """
    try:
        content = read_json(path, SMALL)
    except UsageError as error:
        raise UsageError(f"target file {error.message}", hint=error.hint) from None
    tag = content if isinstance(content, str) else None
    if isinstance(content, dict):
        tag = content.get("tag")
    if tag is not None:
        content = _from_tag(path, str(tag))
    if not isinstance(content, dict) or content.get("kind") not in ("llvm", "opencl"):
        raise UsageError(
            f"target file {path}: needs a tag, or an object with kind llvm or opencl",
            hint='for example {"kind": "opencl", "device": "mali", "max_threads_per_block": 256}',
        )
    if "host" in content:
        raise UsageError(
            f"target file {path}: key host: the host code is built for this machine",
            hint="leave it out",
        )
    for key in ("cl-opt", "opt-level"):
        if key in content:
            raise UsageError(
                f"target file {path}: key {key}: TVM reads it of the host code only, so it would do nothing",
                hint="leave it out, or see [compile] in search_spaces/host_cpu.toml and give --space FILE",
            )
    try:
        check_attributes(content)
    except UsageError as error:
        raise UsageError(f"target file {path}: {error.message}", hint=error.hint) from None
    base = (
        find(_opencl_device(content)) if content["kind"] == "opencl" else _processor(path, content)
    )
    spec = replace(
        base,
        name=path.stem,
        description=f"from {path.name}",
        tvm=tuple({**_defaults(base), **{k: _frozen(v) for k, v in content.items()}}.items()),
    )
    tvm_target(spec, None)
    for key in (*_WORK_ITEMS, _LOCAL_MEMORY, _SUB_GROUP):
        if spec.family == "opencl" and content.get(key, 1) < 1:
            raise UsageError(
                f"target file {path}: key {key} is {content[key]}", hint="give 1 or more"
            )
    return spec


def check_attributes(tvm: Mapping[str, Any]) -> None:
    """Refuses attributes of a TVM target that a file may not set, such as options that make LLVM load code.

    Args:
        tvm: The target as a dictionary, from a file.

    Raises:
        UsageError: An attribute is unknown, or its value has the wrong type or range.
    """
    for key, value in tvm.items():
        _check_attribute(key, value)


def _check_attribute(key: str, value: Any) -> None:
    form = _ATTRIBUTES.get(key)
    if form is None:
        raise UsageError(
            f"key {key[:60]} is none that a target file may have",
            hint=f"known: {', '.join(_ATTRIBUTES)}",
        )
    if isinstance(form, range):
        right = type(value) is int and value in form
        wanted = f"a whole number from {form[0]} to {form[-1]}"
    elif form is str:
        right = isinstance(value, str) and _WORD.fullmatch(value) is not None
        wanted = "a word"
    else:
        right = isinstance(value, list | tuple) and all(
            isinstance(one, str) and _WORD.fullmatch(one) for one in value
        )
        wanted = "a list of words"
    if not right:
        raise UsageError(f"key {key} is {json.dumps(value)[:60]}, and {wanted} is wanted")


def given_limits(tvm: Mapping[str, Any]) -> spaces.Limits:
    """Returns the limits that an OpenCL target's description contains."""
    given = {
        "max_threads_per_block": min((tvm[key] for key in _WORK_ITEMS if key in tvm), default=None),
        "max_local_memory_bytes": tvm.get(_LOCAL_MEMORY),
        "sub_group_size": tvm.get(_SUB_GROUP),
    }
    return spaces.Limits(**{key: value for key, value in given.items() if value is not None})


def on_cores(spec: TargetSpec, count: int) -> TargetSpec:
    """Returns the target with a number of cores. The rules split parallel loops by this number."""
    return replace(spec, tvm=tuple({**dict(spec.tvm), "num-cores": count}.items()))


def same_code(one: TargetSpec, other: TargetSpec) -> bool:
    """Returns whether kernels of two targets can be in one step or library. Their numbers of cores may differ."""
    return on_cores(one, 1) == on_cores(other, 1)


def _from_tag(path: Path, tag: str) -> dict[str, Any]:
    """Returns the TVM target of one of TVM's tags, as a dictionary."""
    from tvm.target import Target

    try:
        exported = Target(tag).export()
    except Exception as error:
        raise UsageError(
            f"target file {path}: TVM has no target tag {tag!r}",
            hint="for example qcom/adreno-opencl or raspberry-pi/4b-aarch64",
        ) from error
    derived = ("tag", "keys", "host")
    return {
        str(key): list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value
        for key, value in exported.items()
        if str(key) not in derived and not str(key).startswith("feature.")
    }


def _processor(path: Path, content: dict[str, Any]) -> TargetSpec:
    """Returns the target whose space and runner fit an LLVM target."""
    triple = str(content.get("mtriple", ""))
    parts = triple.split("-")
    if not triple or (parts[0] == platform.machine() and "linux" in parts):
        return replace(find("cpu"), triple="")
    if parts[0] == "aarch64" and "linux" in parts and not triple.endswith("android"):
        content["mtriple"] = ARM_TRIPLE
        return find("arm-cpu")
    raise UsageError(
        f"target file {path}: key mtriple: {triple} can be neither run nor checked here",
        hint=f"leave it out for this machine, or give {ARM_TRIPLE}",
    )


def _defaults(base: TargetSpec) -> dict[str, Any]:
    """Returns values for keys that a target file may omit."""
    cores = dict(base.tvm).get("num-cores")
    return {} if cores is None else {"num-cores": cores}


def _opencl_device(content: dict[str, Any]) -> str:
    device = content.get("device", "")
    return device if device in ("adreno", "mali") else "opencl"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _known_processor(mcpu: str, triple: str) -> bool:
    from tvm.target import Target, codegen

    target = Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
    return mcpu in {str(name) for name in codegen.llvm_get_cpu_archlist(target)}


def _unknown_feature(words: Iterable[str], triple: str) -> str:
    """Returns the first of LLVM's features, with its sign, that LLVM does not know; empty if it knows them all."""
    from tvm.target import Target, codegen

    for word in words:
        name = word.lstrip("+-")
        attributes = {"kind": "llvm", "mattr": [f"+{name}"]}
        target = Target({**attributes, **({"mtriple": triple} if triple else {})})
        with _llvm_says_nothing():
            known = {str(one) for one in codegen.llvm_get_cpu_features(target)}
        if name not in known:
            return word
    return ""


@contextmanager
def _llvm_says_nothing() -> Iterator[None]:
    """Keeps LLVM's own warnings, which name no file and no key, from this process's stderr."""
    sys.stderr.flush()
    kept, nowhere = os.dup(_STDERR), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(nowhere)


def host_features() -> dict[str, Any]:
    """Returns LLVM's name of this processor, the number of cores, and features that it lacks despite that name.

    Virtual machines hide features of their processor. Code that uses a hidden feature would be killed by SIGILL.
    """
    from tvm.target import Target, codegen

    cpu = str(codegen.llvm_get_system_cpu())
    features: dict[str, Any] = {"mcpu": cpu, "num-cores": cores()}
    if platform.machine() != "x86_64":
        return features
    claimed = codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": cpu}))
    present = _cpuinfo_flags()
    hidden = sorted(
        str(name)
        for name in claimed
        if str(name).startswith(("avx", "amx", "sha512", "sm3", "sm4"))
        and str(name).replace("-", "_").replace("_", "") not in present
    )
    if present and hidden:
        features["mattr"] = [f"-{name}" for name in hidden]
    return features


def _cpuinfo_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    for line in lines:
        if line.startswith("flags"):
            return {flag.replace("_", "") for flag in line.split(":", 1)[1].split()}
    return set()


def tvm_target(
    spec: TargetSpec, limits: spaces.Limits | None, options: spaces.Compile | None = None
) -> Any:
    """Builds the `tvm.target.Target`, with its host.

    Args:
        spec: The target.
        limits: Work-group limits of an OpenCL target's space. The target's own limits have precedence.
        options: How tuned kernels are compiled; None for untuned ones.

    Raises:
        UsageError: TVM refuses the description.
    """
    from tvm.target import Target

    content: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in spec.tvm}
    host = {"kind": "llvm", **({"mtriple": spec.triple} if spec.triple else host_features())}
    host.pop("num-cores", None)
    if options is not None and options.llvm_options():
        host["cl-opt"] = options.llvm_options()
    if spec.family == "cpu" and not spec.triple:
        content = {**host_features(), **content}
    if limits is not None:
        content.setdefault("max_threads_per_block", limits.max_threads_per_block)
        content.setdefault("max_shared_memory_per_block", limits.max_local_memory_bytes)
        # With a larger value, TVM 0.27 adds up a sub-group's items with barriers that other items never reach: a
        # deadlock.
        content["thread_warp_size"] = 1
    if "mcpu" in content and not _known_processor(content["mcpu"], spec.triple):
        raise UsageError(
            f"target {spec.name}: key mcpu: LLVM knows no processor {content['mcpu']!r}"
        )
    if spec.family == "cpu" and (
        unknown := _unknown_feature(dict(spec.tvm).get("mattr", ()), spec.triple)
    ):
        raise UsageError(
            f"target {spec.name}: key mattr: LLVM knows no feature {unknown!r} of this processor",
            hint="give LLVM's names with a sign, such as +dotprod or -sve",
        )
    try:
        return Target(content, host=host)
    except Exception as error:
        reason = str(error).strip().splitlines()[-1]
        raise UsageError(f"target {spec.name}: TVM refuses it: {reason}") from error
