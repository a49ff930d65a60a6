"""The rooms keep to what they may import."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "autotune"
MAY_IMPORT = {
    "workloads": {"errors", "reading", "workloads"},
    "measurement": {"errors", "reading", "scratch", "waits", "measurement", "devices", "power"},
    "report": {"errors", "reading", "report", "studies", "records", "measurement", "workloads"},
    "records": {"errors", "reading", "records"},
    "devices": {"errors", "reading", "devices"},
    "power": {"errors", "reading", "power", "devices"},
    "studies": {"errors", "reading", "studies", "measurement", "power", "devices", "workloads"},
    "tracker": {"errors", "reading", "tracker", "devices"},
    "emulator": {"errors", "reading", "emulator", "devices", "workloads"},
    "compiler": {
        "errors",
        "reading",
        "scratch",
        "waits",
        "compiler",
        "workloads",
        "measurement",
        "devices",
        "records",
    },
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_tvm_is_imported_in_the_compiler_room_only() -> None:
    offenders = [
        str(path)
        for path in PACKAGE.rglob("*.py")
        if "compiler" not in path.parts
        and any(name.split(".")[0] in ("tvm", "tvm_ffi") for name in imports(path))
    ]
    assert offenders == []


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    offenders = []
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "autotune" and len(parts) > 1 and parts[1] not in MAY_IMPORT[room]:
                if parts[1:] == ["__version__"]:
                    continue
                offenders.append(f"{path.name}: {name}")
    assert offenders == []


def test_the_workloads_room_needs_only_numpy_and_torch_for_captured_models() -> None:
    import sys

    allowed = {*sys.stdlib_module_names, "numpy", "autotune"}
    found = {
        (name.split(".")[0], path.parent.name)
        for path in (PACKAGE / "workloads").rglob("*.py")
        for name in imports(path)
    }
    assert {(name, room) for name, room in found if name not in allowed} == {("torch", "capture")}


def test_torch_is_imported_in_one_function_only() -> None:
    importers = [
        path
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == "torch" for name in imports(path))
    ]
    assert [path.relative_to(PACKAGE).as_posix() for path in importers] == [
        "workloads/capture/factory.py"
    ]
    top = ast.parse(importers[0].read_text(encoding="utf-8")).body
    assert not [
        alias.name for node in top if isinstance(node, ast.Import) for alias in node.names
        if alias.name.startswith("torch")
    ]  # fmt: skip
