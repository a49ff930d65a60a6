"""Reads an export's manifest, which somebody else may have written, and refuses one that no export has.

What a manifest says of kernels, checks and the format follows from the kernels and the library's name. So it is
made again and compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from autotune.compiler.export.c_format import c_parts
from autotune.compiler.export.checks import check_of, chosen
from autotune.compiler.export.cpu_features import FEATURES, features_differ
from autotune.compiler.export.manifest import (
    MANIFEST,
    MANIFEST_SCHEMA_VERSION,
    check_entry,
    figures_entry,
    kernel_entry,
    safe_entry,
)
from autotune.compiler.export.opencl_format import opencl_parts
from autotune.compiler.export.tree import folders_of, is_plain
from autotune.compiler.export.variants import SAFE, Figures
from autotune.compiler.native import Platform
from autotune.compiler.target import LARGEST_TOLERANCE
from autotune.errors import AutotuneError, RecordError, UsageError
from autotune.reading import (
    SMALL,
    Count,
    FromOutside,
    Name,
    Unreadable,
    is_version,
    parse_json,
    read_json,
    typed,
)
from autotune.workloads import parse_kernel
from autotune.workloads.operators import Kernel

_PARTS = {
    *("schema_version", "format", "name", "platform", "model", "batch", "stand_in", "versions"),
    *("files", "safe_variant", "variants", "kernels", "checks"),
}
_OF_FORMAT = {
    "tvm": {"library", "family", "tvm_target"},
    "c": {"cpu_features"},
    "opencl": {"tvm_target", "limits"},
}
_MOST_CALLS = 2**31 - 1
_MOST_THREADS = 1024  # `kMaxThreads` in `rpc/kernel_library`.
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SAFE: dict[str, Any] = {
    "name": SAFE,
    "target": SAFE,
    "cluster": None,
    "threads": None,
    "khz": None,
    "match": dict.fromkeys(("soc", "gpu", "driver", "cluster")),
    "device": None,
    "stand_in": False,
    "source": None,
}
_UNTUNED = figures_entry(Figures(), tuned=False)
_KINDS = {"cpu": "llvm", "aarch64": "llvm", "opencl": "opencl"}
"""TVM's kind of target for each kind of processor."""

_Positive = Annotated[float, Field(strict=True, gt=0, lt=1e15)]
_NotNegative = Annotated[float, Field(strict=True, ge=0, lt=1e15)]
_Truth = Annotated[bool, Field(strict=True)]


class _Match(FromOutside):
    soc: Name | None
    gpu: Name | None
    driver: Name | None
    cluster: Name | None


class _Limits(FromOutside):
    work_group_size: Count
    local_memory_bytes: Count
    buffer_bytes: Count


class _Variant(FromOutside):
    """What a manifest says of a variant; the last fields are of some formats only."""

    name: Name
    target: Name
    cluster: Name | None
    threads: Annotated[int, Field(strict=True, ge=1, le=_MOST_THREADS)] | None
    khz: dict[Name, Count] | None
    match: _Match
    device: dict[Name, Any] | None
    stand_in: _Truth
    source: Name | None
    kernels: Count
    library: Name | None = None
    family: Literal["cpu", "aarch64", "opencl"] | None = None
    tvm_target: Name | None = None
    cpu_features: list[Name] | None = None
    limits: _Limits | None = None


class _Figures(FromOutside):
    default_ms: _Positive | None
    tuned_ms: _Positive | None
    energy_mj: _NotNegative | None
    speedup_interval: tuple[_Positive, _Positive] | None
    max_rel_error: _NotNegative | None
    formulation: Name
    schedule: Name
    tuned: _Truth


class _Kernel(FromOutside):
    """What differs between exports of a kernel."""

    count: Annotated[int, Field(strict=True, ge=1, le=_MOST_CALLS)]
    figures: dict[Name, _Figures]


class _Work(FromOutside):
    """What a manifest says of the whole export."""

    model: Name | None
    batch: Annotated[int, Field(strict=True, ge=1, lt=1 << 31)] | None
    stand_in: _Truth
    versions: dict[Literal["autotune", "apache-tvm", "apache-tvm-ffi"], Name]


class _Damaged(ValueError):  # noqa: N818  # what a manifest is, not what went wrong in the program
    """A manifest is not as we write them. The text says how."""


def read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, Kernel]]:
    """Returns the manifest of an export, and its kernels by name.

    Raises:
        UsageError: There is no export.
        RecordError: It is damaged, or of another version.
    """
    file = path / MANIFEST
    if file.is_symlink() or not file.is_file():
        raise UsageError(
            f"no export at {path}: it has no file {MANIFEST}",
            hint="make one with `autotune export`",
        )
    content = read_json(file, error=RecordError)
    if not isinstance(content, dict) or not is_version(
        content.get("schema_version"), MANIFEST_SCHEMA_VERSION
    ):
        raise RecordError(
            f"{file} is not a manifest of schema version {MANIFEST_SCHEMA_VERSION}",
            hint="export the run again",
        )
    try:
        _check_shape(content)
        kernels = dict(_kernels(content))
        _check_checks(content, kernels)
        _check_variants(content)
        _check_format(content, kernels)
    except _Damaged as fault:
        raise RecordError(f"{file} is damaged: {fault}", hint="export the run again") from None
    return content, kernels


def _check_shape(content: Mapping[str, Any]) -> None:
    """Refuses a manifest without the parts of every export, or with files that no export has."""
    if not content.keys() >= _PARTS:
        raise _Damaged(f"key {min(_PARTS - content.keys())} is missing")
    _typed(_Work, {key: content[key] for key in _Work.model_fields}, "")
    files = content["files"]
    if not isinstance(files, dict) or not all(_DIGEST.fullmatch(str(d)) for d in files.values()):
        raise _Damaged("files is not an object of SHA-256 digests")
    if not files:
        raise _Damaged("files is empty")
    odd = next((name for name in files if not is_plain(name)), None)
    if odd is not None or MANIFEST in files or files.keys() & folders_of(files):
        raise _Damaged(f"{odd or 'a file'!a} is not a valid file name")
    if content["format"] not in ("tvm", "c", "opencl") or not isinstance(content["name"], str):
        raise _Damaged("format must be tvm, c or opencl, and name a text")
    if content["platform"] not in (get_args(Platform) if content["format"] == "c" else ("any",)):
        raise _Damaged("platform is not one that this format is made for")
    if not content["name"].isascii() or not content["name"].isidentifier():
        raise _Damaged("name is not an identifier in C")
    for key in ("variants", "kernels", "checks"):
        if not isinstance(content[key], list) or not all(isinstance(e, dict) for e in content[key]):
            raise _Damaged(f"{key} is not a list of objects")
        if not content[key]:
            raise _Damaged(f"{key} is empty")


def _kernels(content: Mapping[str, Any]) -> Iterator[tuple[str, Kernel]]:
    seen = set()
    for entry in content["kernels"]:
        try:
            kernel = parse_kernel(str(entry["spec"]), str(entry["role"]))
        except (AutotuneError, KeyError) as error:
            raise _Damaged("a kernel is not known") from error
        if kernel.name in seen:
            raise _Damaged(f"kernel {kernel.name} is listed twice")
        seen.add(kernel.name)
        expected = kernel_entry(kernel)
        _compare(expected, entry, f"kernel {kernel.name}")
        more = {key: value for key, value in entry.items() if key not in expected}
        _typed(_Kernel, more, f"kernel {kernel.name}: ")
        yield kernel.name, kernel


def _check_checks(content: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> None:
    names = [str(entry.get("kernel")) for entry in content["checks"]]
    if names not in (list(kernels), [kernel.name for kernel in chosen(tuple(kernels.values()))]):
        raise _Damaged("checks must cover every kernel, or one kernel of each role")
    for number, (name, entry) in enumerate(zip(names, content["checks"], strict=True)):
        tolerance = entry.get("tolerance")
        if not (isinstance(tolerance, float) and 0 < tolerance <= LARGEST_TOLERANCE):
            raise _Damaged(
                f"the tolerance of a check is missing, or larger than {LARGEST_TOLERANCE}"
            )
        expected = check_entry(check_of(number, kernels[name], tolerance))
        _compare(expected, entry, f"check of {name}")
        _refuse_more(entry, expected, f"check of {name}")
        _check_listed(content, *expected["inputs"], *expected["expected"])


def _check_variants(content: Mapping[str, Any]) -> None:
    variants = content["variants"]
    has = Counter(name for entry in content["kernels"] for name in entry["figures"])
    counts = {str(one.get("name")): one.get("kernels") for one in variants}
    if len(counts) != len(variants) or counts != has:
        raise _Damaged("variants and the figures of the kernels do not match")
    for one in variants:
        what = f"variant {one.get('name')!a}"
        own = _OF_FORMAT[content["format"]]
        _refuse_more(one, {*_SAFE, "kernels", *own}, what)
        if missing := sorted(key for key in own if one.get(key) is None):
            raise _Damaged(f"{what}: key {missing[0]} is missing")
        _typed(_Variant, one, f"{what}: ")
        if "tvm_target" in own:
            _check_target(one, what)
    if content["stand_in"] != any(one["stand_in"] for one in variants):
        raise _Damaged("stand_in and the stand_in of the variants do not match")
    expected = safe_entry() if SAFE in counts else None
    if content.get("safe_variant") != expected or (expected is None and content["format"] != "tvm"):
        raise _Damaged(f"safe_variant must be {SAFE} in this format")
    if content["format"] != "tvm":
        safe = {**_SAFE, "kernels": len(content["kernels"])}
        _compare(safe, variants[0], "safe variant")
        for entry in content["kernels"]:
            _compare(_UNTUNED, entry["figures"][SAFE], f"safe variant's {entry['name']}")


def _check_target(variant: Mapping[str, Any], what: str) -> None:
    """Refuses a target of TVM that is not for the kind of processor that the variant is for."""
    try:
        target = parse_json(variant["tvm_target"], SMALL)
    except Unreadable as fault:
        raise _Damaged(f"the tvm_target of {what} is not JSON: {fault}") from None
    wanted = _KINDS[variant.get("family", "opencl")]
    if not isinstance(target, dict) or target.get("kind") != wanted:
        raise _Damaged(f"the tvm_target of {what} must have the kind {wanted}")


def _typed(kind: type[object], content: object, what: str) -> None:
    """Refuses data of another form than `kind` has."""
    try:
        typed(kind, content)
    except Unreadable as fault:
        raise _Damaged(f"{what}{fault}") from None


def _check_format(content: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> None:
    """Refuses fields that the format does not have in such an export, and files that are not listed."""
    loaded = [content["runner"]] if "runner" in content else []
    if content["format"] == "tvm":
        loaded += [one["library"] for one in content["variants"]]
    elif content["format"] == "c":
        parts = c_parts(content["name"], list(kernels.values()))
        _compare(parts, content, "C library")
        loaded += [parts["header"], *parts["libraries"].values()]
        for one in content["variants"]:
            _check_features(one)
    else:
        parts = opencl_parts()
        _compare(parts, content, "OpenCL library")
        loaded += parts.values()
    own = {"runner"} if content["format"] == "tvm" else set(parts)
    _refuse_more(content, _PARTS | own, "manifest")
    _check_listed(content, *loaded)


def _check_features(variant: Mapping[str, Any]) -> None:
    found = variant.get("cpu_features")
    if (
        not isinstance(found, list)
        or not all(isinstance(word, str) and word in FEATURES for word in found)
        or sorted(set(found)) != found
    ):
        raise _Damaged(
            f"variant {variant.get('name')!a}: cpu_features is not a sorted list of known features"
        )
    if found and variant.get("name") == SAFE:
        raise _Damaged("the safe variant must have no cpu_features")


def check_library(path: Path, content: Mapping[str, Any]) -> None:
    """Refuses a manifest of a C library that names other processor features than the library checks for.

    Args:
        path: The export, whose files are those that the manifest lists.
        content: Its manifest.

    Raises:
        RecordError: The features differ.
    """
    if content["format"] != "c":
        return
    named = [word for one in content["variants"] for word in one["cpu_features"]]
    if features_differ((path / content["libraries"]["shared"]).read_bytes(), named):
        raise RecordError(
            f"{MANIFEST} is damaged: its cpu_features and those that the library checks for do not match",
            hint="export the run again",
        )


def _refuse_more(entry: object, known: Collection[str], what: str) -> None:
    """Refuses an entry that is no object, or has keys that no export has."""
    if not isinstance(entry, dict):
        raise _Damaged(f"{what} is not an object")
    if unknown := sorted(entry.keys() - set(known)):
        raise _Damaged(f"{what}: unknown key {unknown[0]!a}")


def _compare(expected: Mapping[str, Any], entry: Mapping[str, Any], what: str) -> None:
    """Refuses an entry that differs from the expected one. As text, because 1 == 1.0 == True in Python."""
    for key, value in expected.items():
        if json.dumps(entry.get(key), sort_keys=True) != json.dumps(value, sort_keys=True):
            raise _Damaged(f"{what}: {key} has another value than such an export has")


def _check_listed(content: Mapping[str, Any], *files: object) -> None:
    if not all(isinstance(one, str) and one in content["files"] for one in files):
        raise _Damaged("it names a file that is not in files")
