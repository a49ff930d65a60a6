"""Runs a module with other tensors in the place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.workloads.capture.factory import import_torch


def call_with(
    module: Any, tensors: Mapping[str, Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """Returns what a module returns if its parameters and buffers are other tensors.

    A parameter that several parts share is replaced in each. A part that has several names is changed once:
    `torch.func.functional_call` with tied weights would leave the other tensors in it.

    Args:
        module: The module. It has its own tensors again afterwards.
        tensors: The other tensors, by the names of `named_parameters` and `named_buffers`; others stay.
        arguments, named: The arguments of the module.
    """
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    others = {id(own[path]): tensor for path, tensor in tensors.items()}
    everywhere = {
        f"{prefix}.{name}" if prefix else name: others[id(tensor)]
        for prefix, part in module.named_modules()
        for name, tensor in (
            *part.named_parameters(recurse=False, remove_duplicate=False),
            *part.named_buffers(recurse=False, remove_duplicate=False),
        )
        if id(tensor) in others
    }
    return import_torch().func.functional_call(
        module, everywhere, arguments, dict(named), tie_weights=False
    )
