"""What is printed on stdout, and the help of commands."""

from autotune.cli.shared.help import Command, Group
from autotune.cli.shared.output import (
    Column,
    command_of,
    faster_text,
    number,
    say_next,
    speedup_text,
    terminal_width,
    time_text,
    times_text,
    with_wide,
    write_error,
    write_json,
    write_next,
    write_table,
    write_text,
)
from autotune.cli.shared.streams import drop_results, own_stdout, results, wants_json

__all__ = [
    "Column",
    "Command",
    "command_of",
    "drop_results",
    "faster_text",
    "Group",
    "number",
    "own_stdout",
    "results",
    "say_next",
    "speedup_text",
    "terminal_width",
    "time_text",
    "times_text",
    "wants_json",
    "with_wide",
    "write_error",
    "write_json",
    "write_next",
    "write_table",
    "write_text",
]
