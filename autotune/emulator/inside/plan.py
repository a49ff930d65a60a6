"""The plan for the first process of a phone: the files that make up the phone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Plan:
    """The phone's files.

    Attributes:
        root_folder: An empty folder of this machine. The phone's root is mounted over it, visible only to the
            phone.
        data_folder: A mounted folder that becomes `/data`.
        hostname: The phone's own name.
        binds: This machine's files and folders by their path in the phone, where they are read-only.
        links: Targets of symbolic links by their path.
        texts: Contents and permission bits of small files by their path.
        kernel_files: Paths outside `/sys` that the emulated kernel also answers, such as `/proc/cpuinfo`.
        environment: Environment of the commands.
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
        """Returns the text that is sent to the first process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads the text in the first process."""
        fields: dict[str, Any] = json.loads(text)
        fields["texts"] = {path: tuple(value) for path, value in fields["texts"].items()}
        return cls(**fields)
