"""Checks Python, and compares installed packages with the versions that autotune requires."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from importlib import metadata

from autotune import DISTRIBUTION
from autotune.doctor.check import Check, absent
from autotune.errors import pip_install

OLDEST_PYTHON = (3, 11)
PURPOSES = {
    "apache-tvm": "compiling kernels and searching schedules",
    "apache-tvm-ffi": "TVM; any other version crashes its search",
    "xgboost": "the cost model of the search",
    "xgboost-cpu": "the cost model of the search",
    "numpy": "reference results and input data",
    "optuna": "searching CPU configurations",
    "adbutils": "talking to Android phones",
    "pydantic": "search-space files",
    "typer": "the command line",
    "rich": "tables and progress",
    "psutil": "TVM's worker processes, and counting cores",
    "cloudpickle": "TVM's worker processes",
    "tornado": "TVM's device tracker",
}
_SAME_IMPORT = {"xgboost": "xgboost-cpu", "xgboost-cpu": "xgboost"}


def python() -> Check:
    """Checks the version of the interpreter that runs this."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    found = ".".join(map(str, sys.version_info[:3]))
    works = sys.version_info >= OLDEST_PYTHON
    return Check(
        "Python",
        "ok" if works else "broken",
        found if works else f"{found}, older than {oldest}",
        "everything",
        "" if works else "rm -rf .venv && make install PYTHON=python3.11",
        required=True,
    )


def packages() -> list[Check]:
    """Checks every package that the installed autotune requires on this machine."""
    if not _can_read_requirements():
        fix = pip_install("packaging")
        return [absent("package packaging", "not installed", "this check", fix, required=True)]
    requirements = _requirements()
    if requirements is None:
        fix = "make install"
        found = "not installed in this environment, so its requirements are unknown"
        return [absent("package autotune", found, "everything", fix, required=True)]
    return [package(requirement) for requirement in requirements]


def package(requirement: str) -> Check:
    """Checks one package.

    Args:
        requirement: In the form of the packaging standard, such as `optuna<6,>=5.0`; its marker is ignored.
    """
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    name = f"package {wanted.name}"
    purpose = PURPOSES.get(wanted.name, "autotune")
    fix = pip_install(f"{wanted.name}{wanted.specifier}")
    for candidate in (wanted.name, _SAME_IMPORT.get(wanted.name)):
        version = _version(candidate) if candidate else None
        if version is None:
            continue
        label = version if candidate == wanted.name else f"{candidate} {version} in its place"
        if wanted.specifier.contains(version, prereleases=True):
            return Check(name, "ok", label, purpose, required=True)
        found = f"{label}, but {wanted.specifier} is needed"
        return Check(name, "broken", found, purpose, fix, required=True)
    return absent(name, "not installed", purpose, fix, required=True)


def pinned(names: Iterable[str]) -> list[str]:
    """Returns the requirements of the packages with these names, as pip takes them."""
    if not _can_read_requirements():
        return list(names)
    from packaging.requirements import Requirement

    parsed = {wanted.name: wanted for wanted in map(Requirement, _requirements() or [])}
    return [f"{name}{parsed[name].specifier}" if name in parsed else name for name in names]


def _can_read_requirements() -> bool:
    return importlib.util.find_spec("packaging") is not None


def _requirements() -> list[str] | None:
    """Returns autotune's requirements on this machine without any extra; None if it is not installed."""
    from packaging.requirements import Requirement

    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    parsed = [(text, Requirement(text).marker) for text in declared]
    return [text for text, marker in parsed if marker is None or marker.evaluate({"extra": ""})]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
