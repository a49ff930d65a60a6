"""Adapters of `peft`, written so that `peft` loads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.scratch import Scratch
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.messages import quiet

_CONFIGURATION = "adapter_config.json"


def check_adapter(name: str, module: Any, folder: Path) -> None:
    """Refuses to write an adapter, before it is trained.

    Args:
        name: The model, for messages.
        module: The `torch.nn.Module` that trains.
        folder: Folder to write.

    Raises:
        UsageError: The module has no adapter, or the folder has something else in it.
    """
    if not hasattr(module, "peft_config"):
        raise UsageError(
            f"{name} has no adapter to save",
            hint="give --lora 8, or a model with an adapter of peft",
        )
    if folder.exists() and not (folder / _CONFIGURATION).is_file():
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", hint="give a new folder")
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} has other files in it", hint="give a new folder, or an adapter's"
            )


def save_adapter(module: Any, values: Mapping[str, NDArray[Any]], folder: Path) -> None:
    """Writes a trained adapter: `adapter_config.json` and `adapter_model.safetensors`.

    An earlier adapter in the folder is replaced as a whole, once the new one is written.

    Args:
        module: The module with an adapter.
        values: Values of the parameters that were trained, by name, in the module's own shapes.
        folder: Folder to write; see `check_adapter`.

    Raises:
        OSError: It cannot be written.
    """
    torch = import_torch()
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(torch.as_tensor(value).reshape(parameters[name].shape))
    scratch = Scratch("adapter", folder.absolute().parent)
    try:
        made = scratch.path / "new"
        with quiet():
            module.save_pretrained(made, safe_serialization=True)
        (made / "README.md").unlink(missing_ok=True)  # A form to fill in.
        if folder.exists():
            folder.rename(scratch.path / "old")
        made.rename(folder)
    finally:
        scratch.close()
