"""The content of an export as versioned data: `manifest.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.compiler.export.checks import Check
from autotune.compiler.export.variants import SAFE, Figures, Variant, kernels_of
from autotune.workloads.operators import Kernel

MANIFEST_SCHEMA_VERSION = 2
MANIFEST = "manifest.json"


def manifest(
    kind: str,
    name: str,
    platform: str,
    variants: Sequence[Variant],
    checks: Sequence[Check],
    of_variant: Mapping[str, Mapping[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """Returns the manifest without its list of files; see docs/export.md.

    Args:
        kind: The format.
        name: The library's name.
        platform: The platform that it was built for.
        variants: The variants.
        checks: The stored checks.
        of_variant: Fields that the format adds to a variant, by the variant's name.
        more: Other fields that the format adds.
    """
    safe = next((one for one in variants if one.is_safe), None)
    work = {(one.model, one.batch) for one in variants if not one.is_safe}
    model, batch = work.pop() if len(work) == 1 else (None, None)
    return {
        "schema_version": MANIFEST_SCHEMA_VERSION,
        "format": kind,
        "name": name,
        "platform": platform,
        "model": model,
        "batch": batch,
        "stand_in": any(one.stand_in for one in variants),
        "versions": {
            "autotune": __version__,
            **{package: version(package) for package in ("apache-tvm", "apache-tvm-ffi")},
        },
        **more,
        "safe_variant": safe and safe_entry(),
        "variants": [{**_variant(one), **of_variant.get(one.name, {})} for one in variants],
        "kernels": [_kernel(kernel, variants) for kernel in kernels_of(variants)],
        "checks": [check_entry(check) for check in checks],
    }


def safe_entry() -> dict[str, Any]:
    """Returns what a manifest says of the safe variant in every export that has one."""
    return {
        "name": SAFE,
        "why": "every kernel with its untuned default schedule, compiled for what all such devices have",
    }


def check_entry(check: Check) -> dict[str, Any]:
    """Returns a manifest's entry for a check."""
    return {
        "kernel": check.kernel.name,
        "role": check.kernel.role,
        "inputs": list(check.inputs),
        "expected": list(check.expected),
        "tolerance": check.tolerance,
    }


def digests(out: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file in a folder except its manifest, by relative path."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {
        path.relative_to(out).as_posix(): digest(path) for path in files if path.name != MANIFEST
    }


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "target": variant.target.name,
        "cluster": variant.cluster or None,
        "threads": variant.threads or None,
        "khz": dict(variant.khz) or None,
        "match": {
            "soc": variant.soc or None,
            "gpu": variant.gpu or None,
            "driver": variant.driver or None,
            "cluster": variant.cluster or None,
        },
        "device": dict(variant.device) or None,
        "stand_in": variant.stand_in,
        "source": variant.source or None,
        "kernels": len(variant.kernels),
    }


def _kernel(kernel: Kernel, variants: Sequence[Variant]) -> dict[str, Any]:
    found = {
        variant.name: one
        for variant in variants
        for one in variant.kernels
        if one.kernel.name == kernel.name
    }
    return {
        **kernel_entry(kernel),
        "count": max(one.count for one in found.values()),
        "figures": {
            name: figures_entry(one.figures, tuned=one.tuned) for name, one in found.items()
        },
    }


def kernel_entry(kernel: Kernel) -> dict[str, Any]:
    """Returns what a manifest says of a kernel in every export."""
    return {
        "name": kernel.name,
        "operator": kernel.operator.name,
        "role": kernel.role,
        "spec": kernel.spec,
        "layout": f"contiguous, {_layout(kernel)}",
        "arguments": [
            {**asdict(spec), "shape": list(spec.shape), "bytes": spec.bytes, "direction": direction}
            for direction, specs in (("in", kernel.inputs), ("out", kernel.outputs))
            for spec in specs
        ],
        # For each output, the number of the input whose memory it may reuse.
        "in_place": list(kernel.replaces),
    }


def figures_entry(figures: Figures, *, tuned: bool) -> dict[str, Any]:
    """Returns what a manifest says of a kernel in a variant."""
    return {**asdict(figures), "tuned": tuned}


def _layout(kernel: Kernel) -> str:
    last = getattr(kernel.operator, "channels_last", None)
    if last is None:
        return "no channels: elements in the order in which the step stores them"
    return "channels last (NHWC), filters RSCK" if last else "channels second (NCHW), filters KCRS"
