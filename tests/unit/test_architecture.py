"""Rooms import the faces that they may, and nothing else."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "autotune"
MOST_FILES = 20
EVERYWHERE = {"children", "errors", "reading", "scratch", "state", "times", "waits"}
"""Modules beside the rooms that every room may import."""

MAY_IMPORT = {
    "devices": "",
    "power": "devices",
    "measurement": "devices power",
    "records": "",
    "workloads": "",
    "tracker": "devices",
    "console": "",
    "compiler.formulations": "workloads",
    "compiler.target": "compiler.formulations records workloads",
    "compiler.tiles": "compiler.target",
    "compiler.programs": "compiler.formulations records workloads",
    "compiler.opencl_c": "compiler.programs compiler.target",
    "compiler.rules": "compiler.formulations compiler.programs compiler.target compiler.tiles "
    "workloads",
    "compiler.search": "compiler.formulations compiler.programs compiler.rules compiler.target compiler.tiles "
    "measurement records workloads",
    "compiler.native": "",
    "compiler.llvm": "",
    "compiler.workers": "",
    "compiler.runners": "compiler.llvm compiler.native compiler.opencl_c compiler.programs compiler.target "
    "compiler.workers measurement workloads",
    "compiler.run": "compiler.formulations compiler.native compiler.programs compiler.rules compiler.runners "
    "compiler.search compiler.target compiler.workers measurement records workloads",
    "compiler.export": "compiler.llvm compiler.native compiler.opencl_c compiler.programs compiler.runners "
    "compiler.target devices records workloads",
    "compiler.step": "compiler.export compiler.native compiler.programs compiler.rules compiler.runners "
    "compiler.target compiler.workers measurement records workloads",
    "studies.space": "devices",
    "studies.models": "devices studies.space workloads",
    "studies.search": "devices studies.models studies.space",
    "studies.evaluators": "devices measurement studies.space",
    "studies.run": "devices measurement power studies.evaluators studies.models studies.search studies.space",
    "studies.replay": "devices power records studies.evaluators studies.run studies.space",
    "studies.joint": "devices measurement studies.evaluators studies.models studies.run studies.space workloads",
    "studies.plans": "devices measurement studies.evaluators studies.joint studies.run studies.space workloads",
    "emulator.model": "devices workloads",
    "emulator.kernel": "devices emulator.model",
    "emulator.device": "devices emulator.kernel emulator.model",
    "emulator.adbd": "",
    "emulator.inside": "emulator.adbd",
    "emulator.phone": "emulator.adbd emulator.device emulator.inside emulator.kernel emulator.model",
    "report.plots": "",
    "report.tables": "records studies.space",
    "report.pages": "measurement records report.plots report.tables studies.space workloads",
    "report.comparing": "measurement records report.pages report.plots studies.space workloads",
    "doctor": "compiler.native",
    "jobs.provenance": "jobs.requests records studies.run",
    "jobs.device": "compiler.native compiler.runners compiler.target console devices emulator.device "
    "emulator.model measurement power studies.run studies.space tracker",
    "jobs.requests": "compiler.formulations compiler.programs compiler.target devices jobs.device measurement "
    "records studies.run studies.space workloads",
    "jobs.steps": "compiler.native compiler.programs compiler.run compiler.runners compiler.step compiler.target "
    "console devices emulator.device jobs.device jobs.provenance jobs.requests measurement records "
    "studies.evaluators studies.models studies.plans studies.run studies.space workloads",
    "jobs.kernels": "compiler.export compiler.native compiler.run compiler.runners compiler.step compiler.target "
    "console jobs.device jobs.provenance jobs.requests jobs.steps records studies.plans workloads",
    "jobs.search": "compiler.step compiler.target console devices jobs.device jobs.kernels jobs.provenance "
    "jobs.requests jobs.steps measurement power records studies.evaluators studies.joint studies.plans "
    "studies.replay studies.run studies.space workloads",
    "cli.shared": "console jobs.provenance records",
    "cli.options": "cli.shared compiler.target console devices emulator.model jobs.device jobs.requests records "
    "studies.plans workloads",
}
"""What each room may import, beside itself and `EVERYWHERE`; the commands of `cli` may import every face."""


def packages() -> set[str]:
    """Every package of the project by its dotted name, without the first part."""
    found = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")}
    return {name.replace("/", ".") for name in found} - {"."}


def room_of(module: str) -> str:
    """The room of a module: one that `MAY_IMPORT` names, or its first part."""
    parts = module.split(".")
    return next(
        (two for two in (".".join(parts[:2]), parts[0]) if two in MAY_IMPORT),
        ".".join(parts[:2]) if parts[0] == "cli" and len(parts) > 2 else parts[0],
    )


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports: the module, and the name in it; lazy and TYPE_CHECKING imports too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports of the project, without the first part of the module."""
    for module, name in imports(path):
        if module == "autotune":
            yield name, ""
        elif module.startswith("autotune."):
            yield module.removeprefix("autotune."), name


def files_of(room: str) -> list[Path]:
    return sorted(PACKAGE.joinpath(*room.split(".")).rglob("*.py"))


def test_tvm_is_imported_in_the_compiler_room_only() -> None:
    offenders = [
        str(path)
        for path in PACKAGE.rglob("*.py")
        if "compiler" not in path.parts
        and any(module.split(".")[0] in ("tvm", "tvm_ffi") for module, _ in imports(path))
    ]
    assert offenders == []


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed = {room, *MAY_IMPORT[room].split(), *EVERYWHERE}
    offenders = [
        f"{path.name}: {module}"
        for path in files_of(room)
        for module, _ in own_imports(path)
        if room_of(module) not in allowed and module not in ("__version__", "DISTRIBUTION")
    ]
    assert offenders == []


def test_every_room_says_what_it_may_import() -> None:
    inner = {"workloads", "compiler.export", "compiler.formulations", "emulator.inside"}
    named = {name for name in packages() if not any(name.startswith(f"{one}.") for one in inner)}
    parents = {name for name in named if any(other.startswith(f"{name}.") for other in named)}
    assert named - parents - {"cli.commands", "cli.search_commands"} == set(MAY_IMPORT) - parents


def test_no_room_imports_another_in_a_circle() -> None:
    below = {room: set(allowed.split()) for room, allowed in MAY_IMPORT.items()}
    while free := {room for room, others in below.items() if not others}:
        below = {room: others - free for room, others in below.items() if room not in free}
    assert below == {}


def defining(module: str, name: str) -> str:
    """The module that a name comes from, through the faces on the way."""
    face = PACKAGE.joinpath(*module.split("."), "__init__.pyi")
    if face.exists():
        for node in ast.parse(face.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
                return (
                    defining(f"{module}.{node.module}", name) if node.module else f"{module}.{name}"
                )
    inner = f"{module}.{name}"
    return inner if PACKAGE.joinpath(*inner.split(".")).with_suffix(".py").exists() else module


def test_no_module_imports_another_in_a_circle() -> None:
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        graph[here] = {defining(*one) for one in own_imports(path)} - {here}
    assert len(graph) > 400
    list(TopologicalSorter(graph).static_order())


def test_other_rooms_import_faces_only() -> None:
    """A module of another room is reached through the face that its package is."""
    faces = packages()
    offenders = []
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).as_posix().removesuffix(".py").replace("/", ".")
        for module, _ in own_imports(path):
            if module.partition(".")[0] in EVERYWHERE or module in ("__version__", "DISTRIBUTION"):
                continue
            if room_of(module) != room_of(here) and module not in faces:
                offenders.append(f"{here}: {module}")
    assert sorted(set(offenders)) == [
        # The program that is started, and the one that runs inside an emulated phone, where little is imported.
        "__main__: cli.main",
        "emulator.inside.first_process: emulator.adbd.sync_service",
        "emulator.phone.userland: emulator.inside.plan",
    ]


@pytest.mark.parametrize("face", sorted(packages()))
def test_a_face_exports_what_it_names_and_says_what_it_is_for(face: str) -> None:
    if face == "workloads.capture":
        pytest.importorskip("torch")
    module = importlib.import_module(f"autotune.{face}")
    assert (module.__doc__ or "").strip()
    names = list(getattr(module, "__all__", ()))
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(module, name), f"autotune.{face} names {name}"


def test_no_folder_has_too_many_files() -> None:
    crowded = {
        str(folder): len(files)
        for root in (PACKAGE, Path(__file__).parents[1])
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir()))
        if len(files := [p for p in folder.glob("*.py") if p.name != "__init__.py"]) > MOST_FILES
    }
    assert crowded == {}


def test_the_workloads_room_needs_only_numpy_scipy_and_what_captured_models_need() -> None:
    import sys

    allowed = {*sys.stdlib_module_names, "numpy", "scipy", "autotune", "lazy_loader"}
    found = {
        (module.split(".")[0], path.parent.name)
        for path in (PACKAGE / "workloads").rglob("*.py")
        for module, _ in imports(path)
    }
    assert {(name, room) for name, room in found if name not in allowed} == {
        ("torch", "capture"),
        ("tokenizers", "data"),
    }


def test_torch_is_imported_in_one_function_only() -> None:
    importers = [
        path
        for path in PACKAGE.rglob("*.py")
        if any(module.split(".")[0] == "torch" for module, _ in imports(path))
    ]
    assert [path.relative_to(PACKAGE).as_posix() for path in importers] == [
        "workloads/capture/factory.py"
    ]
    top = ast.parse(importers[0].read_text(encoding="utf-8")).body
    assert not [
        alias.name for node in top if isinstance(node, ast.Import) for alias in node.names
        if alias.name.startswith("torch")
    ]  # fmt: skip
