"""The user's settings in `autotune.toml`, in this folder or one above it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.reading import read_toml

_NAME = "autotune.toml"
_KNOWN = {"devices": {"ssh"}}


def boards() -> list[str]:
    """Returns boards reached by ssh: `[devices] ssh = ["user@host", ...]`.

    Raises:
        UsageError: The file is damaged, or this entry has another type.
    """
    path = _file()
    if path is None:
        return []
    found = _read(path).get("devices", {}).get("ssh", [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise UsageError(
            f"{path}: key devices.ssh is not a list of texts", hint='such as ["pi@raspberrypi"]'
        )
    return found


def _file() -> Path | None:
    here = Path.cwd()
    return next((f / _NAME for f in (here, *here.parents) if (f / _NAME).is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    content = read_toml(path)
    for table, entries in content.items():
        if table not in _KNOWN:
            raise UsageError(f"{path}: no such key: {table}", hint=f"known: {', '.join(_KNOWN)}")
        wrong = set(entries) - _KNOWN[table] if isinstance(entries, dict) else {"(not a table)"}
        if wrong:
            raise UsageError(
                f"{path}: no such key: {table}.{min(wrong)}",
                hint=f"known: {', '.join(f'{table}.{name}' for name in sorted(_KNOWN[table]))}",
            )
    return content
