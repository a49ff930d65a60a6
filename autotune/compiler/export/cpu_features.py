"""Finds the processor features that compiled code uses, in Linux's names, so that a library can check for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# LLVM's names of features, and Linux's words for them in /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h,
# arch/arm64/kernel/cpuinfo.c). Left out are features that every processor of the architecture has, and those that
# code generation never uses by itself.
_OF_X86 = {
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "popcnt": "popcnt",
    "lzcnt": "abm",
    "movbe": "movbe",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "f16c": "f16c",
    "fma": "fma",
    "fma4": "fma4",
    "xop": "xop",
    "avx": "avx",
    "avx2": "avx2",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
_OF_ARM = {
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "rdm": "asimdrdm",
    "lse": "atomics",
    "rcpc": "lrcpc",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
}

_LINUX_NAMES = {**_OF_X86, **_OF_ARM}
FEATURES = frozenset(_LINUX_NAMES.values())
"""Linux's words for the features that compiled code may use."""
_ALSO_FUNCTIONS = {"fma"}  # A library may name it because it calls it.


def cpu_features(target: Any) -> tuple[str, ...]:
    """Returns the features that code for a TVM target may use beyond its architecture's baseline.

    Args:
        target: A `tvm.target.Target` of kind `llvm`, with or without a host.

    Returns:
        Words of `/proc/cpuinfo`, sorted.
    """
    found: set[str] = set()
    for one in (target, target.host):
        if one is not None:
            found |= _features(one)
    return tuple(sorted(found))


def features_differ(library: bytes, named: Iterable[str]) -> bool:
    """Returns whether a C library checks for other features than those that its manifest names.

    Args:
        library: The library's bytes.
        named: The features of all its variants.
    """
    listed = set(named)
    # A linker may keep a word as the end of another one. Libraries for ARM name all of theirs, in their own table.
    held = {word for word in _OF_X86.values() if b"\0" + word.encode() + b"\0" in library}
    absent = any(word.encode() + b"\0" not in library for word in listed)
    return absent or not held - _ALSO_FUNCTIONS <= listed


def _features(target: Any) -> set[str]:
    from tvm.target import codegen

    names = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    for change in target.attrs.get("mattr", ()):
        word = str(change)
        if word.startswith("-"):
            names.discard(word[1:])
        else:
            names.add(word.removeprefix("+"))
    return {_LINUX_NAMES[name] for name in names if name in _LINUX_NAMES}
