"""Reads an export's manifest, which somebody else may have written, and refuses one that no export has.

What a manifest says of kernels, checks and the format follows from the kernels and the library's name. So it is
made again and compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from autotune.compiler.export.c_format import c_parts
from autotune.compiler.export.checks import check_of
from autotune.compiler.export.manifest import (
    MANIFEST,
    MANIFEST_SCHEMA_VERSION,
    check_entry,
    kernel_entry,
)
from autotune.compiler.export.opencl_format import opencl_parts
from autotune.compiler.export.tree import folders_of, is_plain
from autotune.compiler.native import Platform
from autotune.compiler.target import LARGEST_TOLERANCE
from autotune.errors import AutotuneError, RecordError, UsageError
from autotune.reading import is_version, read_json
from autotune.workloads import parse_kernel
from autotune.workloads.operators import Kernel

_PARTS = {"format", "name", "platform", "files", "variants", "kernels", "checks"}
_DIGEST = re.compile(r"[0-9a-f]{64}")


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
            f"no export at {path}: {MANIFEST} is missing", hint="make one with `autotune export`"
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
        raise _Damaged("parts are missing")
    files = content["files"]
    if not isinstance(files, dict) or not all(_DIGEST.fullmatch(str(d)) for d in files.values()):
        raise _Damaged("its files have no SHA-256 each")
    if not files:
        raise _Damaged("it lists no files")
    odd = next((name for name in files if not is_plain(name)), None)
    if odd is not None or MANIFEST in files or files.keys() & folders_of(files):
        raise _Damaged(f"{odd or 'a file'!a} cannot be a file of an export")
    if content["format"] not in ("tvm", "c", "opencl") or not isinstance(content["name"], str):
        raise _Damaged("its format is not tvm, c or opencl, or its name is no text")
    if content["platform"] not in (get_args(Platform) if content["format"] == "c" else ("any",)):
        raise _Damaged("its platform is none that such an export is for")
    if not content["name"].isascii() or not content["name"].isidentifier():
        raise _Damaged("its name is not a name in C")
    for key in ("variants", "kernels", "checks"):
        if not isinstance(content[key], list) or not all(isinstance(e, dict) for e in content[key]):
            raise _Damaged(f"its {key} are not a list of objects")
        if not content[key]:
            raise _Damaged(f"it has no {key}")


def _kernels(content: Mapping[str, Any]) -> Iterator[tuple[str, Kernel]]:
    seen = set()
    for entry in content["kernels"]:
        try:
            kernel = parse_kernel(str(entry["spec"]), str(entry["role"]))
        except (AutotuneError, KeyError) as error:
            raise _Damaged("a kernel of it is not known") from error
        if kernel.name in seen:
            raise _Damaged(f"it lists {kernel.name} twice")
        seen.add(kernel.name)
        _compare(kernel_entry(kernel), entry, f"kernel {kernel.name}")
        if not isinstance(entry.get("figures"), dict):
            raise _Damaged(f"{kernel.name} has no figures")
        yield kernel.name, kernel


def _check_checks(content: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> None:
    names = [str(entry.get("kernel")) for entry in content["checks"]]
    if len(set(names)) != len(names) or not kernels.keys() >= set(names):
        raise _Damaged("a check is for a kernel that is not listed, or that has another check")
    for number, (name, entry) in enumerate(zip(names, content["checks"], strict=True)):
        tolerance = entry.get("tolerance")
        if not (isinstance(tolerance, float) and 0 < tolerance <= LARGEST_TOLERANCE):
            raise _Damaged(f"a check has no tolerance of at most {LARGEST_TOLERANCE}")
        expected = check_entry(check_of(number, kernels[name], tolerance))
        _compare(expected, entry, f"check of {name}")
        _check_listed(content, *expected["inputs"], *expected["expected"])


def _check_variants(content: Mapping[str, Any]) -> None:
    variants = content["variants"]
    has = Counter(name for entry in content["kernels"] for name in entry["figures"])
    counts = {str(one.get("name")): one.get("kernels") for one in variants}
    if len(counts) != len(variants) or counts != has:
        raise _Damaged("its variants are not those whose figures its kernels have")
    safe = content.get("safe_variant")
    if safe is not None and (not isinstance(safe, dict) or str(safe.get("name")) not in counts):
        raise _Damaged("its safe variant is not listed")


def _check_format(content: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> None:
    """Refuses fields that the format does not have in such an export, and files that are not listed."""
    loaded = [content["runner"]] if "runner" in content else []
    if content["format"] == "tvm":
        for one in content["variants"]:
            if one.get("family") not in ("cpu", "aarch64", "opencl"):
                raise _Damaged("a variant is for no known kind of processor")
            loaded.append(one.get("library"))
    elif content["format"] == "c":
        parts = c_parts(content["name"], list(kernels.values()))
        _compare(parts, content, "C library")
        loaded += [parts["header"], *parts["libraries"].values()]
    else:
        parts = opencl_parts()
        _compare(parts, content, "OpenCL library")
        loaded += parts.values()
    _check_listed(content, *loaded)


def _compare(expected: Mapping[str, Any], entry: Mapping[str, Any], what: str) -> None:
    """Refuses an entry that differs from the expected one. As text, because 1 == 1.0 == True in Python."""
    for key, value in expected.items():
        if json.dumps(entry.get(key), sort_keys=True) != json.dumps(value, sort_keys=True):
            raise _Damaged(f"its {key} of the {what} is not what the export must have")


def _check_listed(content: Mapping[str, Any], *files: object) -> None:
    if not all(isinstance(one, str) and one in content["files"] for one in files):
        raise _Damaged("it names a file that it does not list")
