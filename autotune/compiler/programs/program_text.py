"""Programs as text, from one of our processes to another."""

from __future__ import annotations

from typing import Any


def program_text(module: Any) -> str:
    """Returns a `tvm.IRModule` as JSON, for `program_of` of the same version of TVM."""
    import tvm

    return str(tvm.ir.save_json(module))


def program_of(text: str) -> Any:
    """Returns the `tvm.IRModule` of a text of `program_text`.

    `tvm.ir.load_json` reads texts of older versions too. For that it parses and writes each text once more in
    Python, which takes ten times as long as the rest.
    """
    import tvm  # noqa: F401  # has the types of the program
    from tvm_ffi.serialization import from_json_graph_str

    return from_json_graph_str(text)
