"""Text files of an export: filled templates, and licences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from autotune.compiler.native import package_folder
from autotune.errors import ToolchainError

_TEMPLATES = Path(__file__).parent / "templates"
_WORD = re.compile(r"@([A-Z_]+)@")

_NOTICE = """\
These kernels were written by autotune, which is under the Apache License 2.0 (LICENSE).

They were compiled by Apache TVM, and what runs them is compiled against its headers; Apache TVM is under the Apache
License 2.0 too (licenses/LICENSE.tvm), and says of itself (licenses/NOTICE.tvm):

"""
_NOTICE_C = """
The libraries hold functions of LLVM's compiler-rt that convert half precision
(licenses/LICENSE.builtin_fp16.txt). Shared C libraries for Linux hold parts of GCC's runtime libraries (libstdc++,
libgcc), which are under the GPL 3 with the GCC Runtime Library Exception; that exception lets them go with works
under any licence.
"""


def template(name: str, words: Mapping[str, str]) -> str:
    """Returns a template with its `@WORDS@` replaced.

    Raises:
        KeyError: A word is missing.
    """
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    return _WORD.sub(lambda found: words[found[1]], text)


def write(path: Path, text: str) -> None:
    """Writes a text file, and makes its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_licences(out: Path, *, native: bool) -> None:
    """Writes the licences of everything in an export.

    Args:
        out: The export's folder.
        native: Whether it contains machine code.

    Raises:
        ToolchainError: Parts of the installation are missing.
    """
    package = Path(__file__).resolve().parents[2]
    # The wheel's copy first: next to an installed package, `../LICENSE` may be something else.
    own = next((p for p in (package / "_LICENSE", package.parent / "LICENSE") if p.is_file()), None)
    tvm = package_folder("tvm")
    texts = {
        "LICENSE": own,
        "licenses/LICENSE.tvm": tvm / "LICENSE",
        "licenses/NOTICE.tvm": tvm / "NOTICE",
    }
    if native:
        fp16 = "LICENSE.builtin_fp16.txt"
        texts[f"licenses/{fp16}"] = tvm / "licenses" / fp16
    try:
        for name, source in texts.items():
            write(out / name, (source or package / "_LICENSE").read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolchainError(
            f"a licence text is missing: {error}", hint="reinstall autotune"
        ) from error
    notice = (tvm / "NOTICE").read_text(encoding="utf-8")
    quoted = "".join(f"    {line}\n" if line else "\n" for line in notice.splitlines())
    write(out / "NOTICE", _NOTICE + quoted + (_NOTICE_C if native else ""))
