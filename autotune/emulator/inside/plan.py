"""What the first process of a phone is told: which files make up the phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Plan:
    """The phone's files.

    Attributes:
        root_folder: An empty folder of this machine, over which the phone's root is mounted in private.
        data_folder: A mounted folder that becomes `/data`.
        hostname: The phone's name for itself.
        binds: This machine's files and folders by their path in the phone; read-only there.
        links: Targets of symbolic links by their path.
        texts: Contents and permission bits of small files by their path.
        kernel_files: Paths outside `/sys` that the emulated kernel answers too, such as `/proc/cpuinfo`.
        environment: Of the commands.
    """

    root_folder: str
    data_folder: str
    hostname: str
    binds: Mapping[str, str]
    links: Mapping[str, str]
    texts: Mapping[str, tuple[str, int]]
    kernel_files: Sequence[str]
    environment: Mapping[str, str]

    def to_json(self) -> str:
        """As it goes to the first process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """As the first process reads it."""
        fields: dict[str, Any] = json.loads(text)
        fields["texts"] = {path: tuple(value) for path, value in fields["texts"].items()}
        return cls(**fields)
