"""`autotune doctor` on this machine: TVM and OpenCL are tried out for real."""

import json
import subprocess
import sys
from pathlib import Path

from command import autotune


def statuses(**environment: str) -> tuple[int, dict[str, str], dict[str, str]]:
    done = autotune("doctor", "--json", timeout=240, **environment)
    reported = [
        line for line in done.stderr.splitlines() if not line.startswith("autotune: waiting:")
    ]
    assert len(reported) == 1
    assert reported[0].startswith("next: autotune ")
    checks = json.loads(done.stdout)["checks"]
    return (
        done.returncode,
        {check["name"]: check["status"] for check in checks},
        {check["name"]: check["found"] for check in checks},
    )


def test_this_machine_is_ready() -> None:
    code, status, found = statuses()
    assert code == 0, found
    assert status["TVM self-check"] == "ok", found


def test_empty_path(tmp_path: Path) -> None:
    code, status, found = statuses(PATH=str(tmp_path))
    assert code == 4
    assert status["TVM self-check"] == "ok", found
    assert status["C++ compiler"] == status["linker ld"] == "missing"
    assert {status[name] for name in ("cmake", "adb", "aarch64 compiler")} == {"optional"}
    if found["OpenCL devices"].startswith("the process died"):  # PoCL, which calls ld.
        assert "died by SIGABRT, as PoCL does without ld" in found["OpenCL devices"]


def test_no_opencl(tmp_path: Path) -> None:
    library = str(tmp_path / "absent.so")
    code, status, found = statuses(AUTOTUNE_OPENCL_LIBRARY=library)
    assert code == 0, found
    assert status["OpenCL library"] == status["OpenCL devices"] == "optional"


def test_present_folder_is_not_searched(tmp_path: Path) -> None:
    """A `tvm.py` where the user happens to be is not TVM."""
    (tmp_path / "tvm.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    argv = [str(Path(sys.executable).with_name("autotune")), "doctor", "--json"]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout
