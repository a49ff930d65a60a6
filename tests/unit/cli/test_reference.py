"""docs/reference/commands.md and docs/reference/operators.md are what the program says of itself."""

import os
from pathlib import Path

from autotune.cli.reference import markdown, operators

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_the_reference_is_what_the_program_prints() -> None:
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        REFERENCE.write_text(markdown(), encoding="utf-8")
    assert markdown() == REFERENCE.read_text(encoding="utf-8"), "`make docs` writes it anew"


def test_the_list_of_operators_is_what_can_be_lowered() -> None:
    written = REFERENCE.with_name("operators.md")
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        written.write_text(operators(), encoding="utf-8")
    assert operators() == written.read_text(encoding="utf-8"), "`make docs` writes it anew"


def test_every_command_is_in_it_with_its_options() -> None:
    text = markdown()
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    assert {"autotune kernels", "autotune tracker up", "autotune cpu-config compare"} <= set(
        sections
    )
    assert "`--micro-batch N`" in sections["autotune kernels"]
    assert "--per-cluster" in sections["autotune tracker up"]
    assert "--per-cluster" not in sections["autotune tracker down"]
