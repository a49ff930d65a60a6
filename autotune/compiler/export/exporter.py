"""Writes variants as an export: a folder that is written completely or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, get_args

from autotune import __version__
from autotune.compiler.export import c_format, c_source, opencl_format, tvm_format
from autotune.compiler.export.checks import chosen, write_checks
from autotune.compiler.export.manifest import MANIFEST, digest, digests, manifest
from autotune.compiler.export.objects import Report
from autotune.compiler.export.texts import write_licences
from autotune.compiler.export.tree import entries, folders_of, is_plain
from autotune.compiler.export.variants import Variant, kernels_of
from autotune.compiler.native import Platform, check_disks, check_room
from autotune.errors import UsageError, choices
from autotune.reading import read_json
from autotune.records import is_run, write_json
from autotune.scratch import Scratch, sweep

Format = Literal["tvm", "c", "opencl"]
FORMATS: tuple[Format, ...] = get_args(Format)
NAME = "autotune_kernels"
_STAGED = "export"
_MOVING = ".autotune-export.json"
_ANY = "any"  # The platform of exports that are compiled where they run, or loaded there by TVM.


def named_format(name: str) -> Format:
    """Returns a format by its name.

    Raises:
        UsageError: The name is unknown.
    """
    for known in FORMATS:
        if known == name:
            return known
    raise UsageError(f"unknown format {name!r}", hint=choices(name, FORMATS))


def export(
    variants: Sequence[Variant],
    out: Path,
    kind: Format,
    *,
    name: str = NAME,
    platform: Platform | None = None,
    check_all: bool = False,
    report: Report = lambda phase, done, total: None,
) -> dict[str, Any]:
    """Writes variants of kernels as a library.

    Args:
        variants: The variants to export; see `variants_of_runs`.
        out: Folder to write to; made if it is missing. An earlier export in it is replaced. Any other folder must
            be empty.
        kind: The format.
        name: The library's name, with which C functions begin.
        platform: Platform of a C library; None for the variants' usual one.
        check_all: Store inputs and results of every kernel, not only of one per role.
        report: Receives progress.

    Returns:
        The manifest, as written to `manifest.json`.

    Raises:
        UsageError: The variants do not fit the format, or `out` holds something else or cannot be written.
        RecordError: Their records are damaged.
        ToolchainError: A compiler is missing, or fails.
    """
    c_source.check_name(name)
    if is_run(out):
        raise UsageError(f"{out} is the folder of a run", hint="give another folder with --out")
    if not variants:
        raise UsageError("there is nothing to export")
    if kind == "c":
        platform = c_format.platform_of(variants, platform)
    elif platform is not None:
        raise UsageError(
            f"--for goes with --format c: {kind} exports are for whatever the runs are for",
            hint="leave it out",
        )
    elif kind == "opencl":
        opencl_format.check_variants(variants)
    made = _staging(out)
    staged = made.path
    try:
        kernels = kernels_of(variants)
        tolerance = max(variant.space.tolerance for variant in variants)
        checks = write_checks(kernels if check_all else chosen(kernels), staged, tolerance)
        every = tuple(variants)
        if platform is not None:
            every, of_variant, more = c_format.write_c(
                variants, checks, name, platform, staged, report
            )
        elif kind == "opencl":
            every, of_variant, more = opencl_format.write_opencl(
                variants, checks, name, staged, report
            )
        else:
            of_variant, more = tvm_format.write_tvm(variants, checks, name, staged, report)
        write_licences(staged, native=kind != "opencl")
        content = manifest(kind, name, platform or _ANY, every, checks, of_variant, **more)
        content["files"] = digests(staged)
        write_json(staged / MANIFEST, content)
        _move(staged, out)
    except OSError as error:
        raise _unwritable(out, error) from error
    finally:
        made.close()
    return content


def _staging(out: Path) -> Scratch:
    """Makes a folder in `out`, so that the finished export only needs renames."""
    try:
        sweep(_STAGED, out)
        if out.exists():
            _refuse_foreign(out)
        check_room(out)
        return Scratch(_STAGED, out)
    except OSError as error:
        raise _unwritable(out, error) from error


def _refuse_foreign(out: Path) -> None:
    """Refuses a folder that contains something other than an export."""
    with closing(entries(out, _earlier(out))) as below:
        foreign = next((one.name for one in below if one.status != "file"), None)
    if foreign is None:
        _refuse_changed(out)
        return
    if foreign.startswith(f".{_STAGED}-"):
        raise UsageError(
            f"another export is being written to {out}", hint="wait for it, or give another --out"
        )
    raise UsageError(
        f"{out} holds something that is not part of an export: {foreign}",
        hint="give a new or empty folder with --out, or remove what it holds",
    )


def _refuse_changed(out: Path) -> None:
    """Refuses an export in which a file was changed since it was written, because the change would be lost."""
    if not (out / MANIFEST).is_file() or (out / _MOVING).exists():
        return  # Empty, or left by a kill.
    listed = read_json(out / MANIFEST).get("files")
    for name, known in listed.items() if isinstance(listed, dict) else ():
        if is_plain(name) and (out / name).is_file() and digest(out / name) != known:
            raise UsageError(
                f"{out / name} was changed since it was exported, and would be replaced",
                hint="give another folder with --out, or move the file away",
            )


def _unwritable(out: Path, error: OSError) -> UsageError:
    check_disks(str(error), [out])
    return UsageError(
        f"cannot write to {out}: {error.strerror or error}",
        hint="give a writable folder with --out",
    )


def _move(staged: Path, out: Path) -> None:
    """Replaces an earlier export by a finished one. The manifest is removed first and written last.

    Meanwhile, a list names the files of both exports, so that files left after a kill can be recognised.
    """
    earlier = _earlier(out)
    fresh = sorted(
        path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file()
    )
    named = sorted({*earlier, *fresh} - {_MOVING})
    write_json(out / _MOVING, {"versions": {"autotune": __version__}, "files": named})
    for name in sorted(earlier - {_MOVING}, key=lambda name: name != MANIFEST):
        (out / name).unlink(missing_ok=True)
    for name in sorted(folders_of(earlier), reverse=True):
        with suppress(OSError):  # It may be missing.
            (out / name).rmdir()
    for name in sorted(fresh, key=lambda name: name == MANIFEST):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).replace(out / name)
    (out / _MOVING).unlink()


def _earlier(out: Path) -> set[str]:
    """Returns the files of an export in a folder, even if a replacement was interrupted; empty without one."""
    names: set[str] = set()
    for file in (MANIFEST, _MOVING):
        try:
            content = read_json(out / file)
            if "autotune" in content["versions"]:
                names |= {file, *filter(is_plain, content["files"])}
        except (UsageError, KeyError, TypeError):
            continue
    return names
