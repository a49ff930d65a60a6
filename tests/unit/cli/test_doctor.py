"""The doctor: each check with the thing there, absent and broken, in real child processes."""

from __future__ import annotations

import json
import re
import stat
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

import autotune.doctor
from autotune import DISTRIBUTION
from autotune.cli.main import main
from autotune.doctor import Check, child, is_ready, machine, packages, runtime, toolchain

REQUIREMENTS = [
    "apache-tvm==0.27.0.post1",
    "apache-tvm-ffi==0.1.14.post1",
    "optuna<6,>=5.0",
    "windows-only>=1; sys_platform == 'win32'",
    "pytest>=9; extra == 'dev'",
]
FINE = Check("fine", "ok", "1.0", "everything", required=True)
LACKING = Check("NDK", "optional", "not set", "phones", "export NDK=FOLDER")
BROKEN = Check("TVM", "broken", "died by SIGSEGV", "everything", "pip install it", required=True)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Makes the PATH an empty folder; the function returned puts a shell script into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("CXX", *toolchain.NDK_VARIABLES):
        monkeypatch.delenv(variable, raising=False)

    def add(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return add


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """The function returned writes a module that child processes find, and returns its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def add(name: str, code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        return name

    return add


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Plays an environment with these packages only."""

    def version(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIREMENTS)


# Tools


@pytest.mark.parametrize(
    ("check", "program"),
    [
        (toolchain.linker, "ld"),
        (toolchain.cmake, "cmake"),
        (toolchain.qemu, "qemu-aarch64"),
        (toolchain.qemu, "qemu-aarch64-static"),
        (toolchain.adb, "adb"),
        (toolchain.cxx_compiler, "g++"),
        (toolchain.cxx_compiler, "clang++"),
        (toolchain.arm_compiler, "aarch64-linux-gnu-g++"),
    ],
)
def test_tool(check: Callable[[], Check], program: str, tools: Callable[[str, str], Path]) -> None:
    absent = check()
    assert absent.status == ("missing" if absent.required else "optional")
    assert program in absent.found
    assert absent.fix
    path = tools(program, "echo version 7.5; echo more")
    there = check()
    assert (there.status, there.found, there.fix) == ("ok", f"{path}: version 7.5", "")
    assert there.required == absent.required
    tools(program, "echo it is broken >&2; exit 3")
    broken = check()
    assert broken.status == "broken"
    assert "it is broken" in broken.found
    assert broken.fix == absent.fix


def test_mending_command_fits_the_machine(
    tools: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain.cmake().fix.startswith("install cmake ")
    tools("apt-get", "exit 0")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert toolchain.cmake().fix == "apt-get install -y cmake"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert toolchain.cmake().fix == "sudo apt-get install -y cmake"


def test_compiler_that_cannot_link(tools: Callable[[str, str], Path]) -> None:
    tools("g++", '[ "$1" = --version ] || { echo "ld: not found" >&2; exit 1; }; echo 12.2')
    check = toolchain.cxx_compiler()
    assert check.status == "broken"
    assert "ld: not found" in check.found
    assert not is_ready([FINE, check])


def test_compiler_of_the_environment(
    tools: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools("g++", "echo 12.2")
    monkeypatch.setenv("CXX", "my-compiler")
    assert toolchain.cxx_compiler().status == "missing"
    path = tools("my-compiler", "echo mine 1.0")
    assert toolchain.cxx_compiler().found == f"{path}: mine 1.0"


def test_tool_that_hangs(
    tools: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "VERSION_TIMEOUT_S", 0.3)
    tools("adb", "/bin/sleep 60")
    start = time.monotonic()
    check = toolchain.adb()
    assert check.status == "broken"
    assert "no answer within 0.3 s" in check.found
    assert time.monotonic() - start < 10


def test_android_ndk(
    tools: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain.android_ndk().status == "optional"
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(tmp_path))
    assert toolchain.android_ndk().status == "broken"
    text = "Pkg.Desc = Android NDK\nPkg.Revision = 26.1.10909125\n"
    (tmp_path / "source.properties").write_text(text, encoding="utf-8")
    check = toolchain.android_ndk()
    assert check.status == "ok"
    assert check.found == f"revision 26.1.10909125 in {tmp_path}"


# Child processes


def test_child_that_dies_by_a_signal() -> None:
    ended = child.run(["/bin/sh", "-c", "echo a >&2; echo b >&2; kill -SEGV $$"], timeout=10)
    assert (ended.works, ended.signal) == (False, "SIGSEGV")
    assert (ended.reason, ended.last_words) == ("the process died by SIGSEGV", "b")
    assert child.signal_name(63) == "signal 63"


def test_child_that_cannot_be_started(tmp_path: Path) -> None:
    ended = child.run([str(tmp_path / "absent")], timeout=10)
    assert not ended.works
    assert ended.reason == "cannot be started: No such file or directory"


# Python and packages


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.python().status == "ok"
    monkeypatch.setattr(packages, "OLDEST_PYTHON", (99, 0))
    old = packages.python()
    assert old.status == "broken"
    assert "older than 99.0" in old.found
    assert not is_ready([old])


def test_packages_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, apache_tvm="0.27.0.post1", apache_tvm_ffi="0.1.15.post1", pytest="9.2.0")
    tvm, ffi, optuna = packages.packages()
    assert (tvm.status, tvm.found, tvm.fix) == ("ok", "0.27.0.post1", "")
    assert (ffi.status, ffi.found) == ("broken", "0.1.15.post1, but ==0.1.14.post1 is needed")
    assert ffi.fix == f"{sys.executable} -m pip install apache-tvm-ffi==0.1.14.post1"
    assert (optuna.status, optuna.found) == ("missing", "not installed")
    assert optuna.fix == f"{sys.executable} -m pip install 'optuna<6,>=5.0'"
    assert all(check.required for check in (tvm, ffi, optuna))


def test_either_xgboost_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, xgboost="3.2.0")
    check = packages.package("xgboost-cpu<4,>=3.2; sys_platform == 'linux'")
    assert (check.status, check.found) == ("ok", "xgboost 3.2.0 in its place")
    installed(monkeypatch, xgboost="2.0.0")
    assert packages.package("xgboost-cpu<4,>=3.2").status == "broken"


def test_autotune_itself_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    (check,) = packages.packages()
    assert (check.status, check.fix, check.required) == ("missing", "make install", True)


def test_requirements_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (check,) = packages.packages()
    assert (check.name, check.status) == ("package packaging", "missing")
    assert packages.pinned(["apache-tvm"]) == ["apache-tvm"]


# TVM and OpenCL


def test_tvm_that_works(modules: Callable[[str, str], str]) -> None:
    answer = {"version": "0.27.0", "cpu": "znver5"}
    name = modules("good_probe", f"print('noise'); print('''{json.dumps(answer)}''')")
    check = runtime.tvm(name)
    assert (check.status, check.found) == ("ok", "0.27.0, compiles for znver5 and runs")


def test_tvm_that_crashes(
    modules: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    name = modules("dying_probe", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    check = runtime.tvm(name)
    assert (check.status, check.required) == ("broken", True)
    assert check.found == "the process died by SIGSEGV: its packages do not fit together"
    assert check.fix == (
        f"{sys.executable} -m pip install --force-reinstall --no-deps "
        "apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1"
    )


def test_tvm_that_raises(modules: Callable[[str, str], str]) -> None:
    name = modules("raising_probe", "raise ImportError('libtvm.so: not found')")
    check = runtime.tvm(name)
    assert check.status == "broken"
    assert check.found == "ImportError: libtvm.so: not found"


def test_tvm_that_hangs(
    modules: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "TVM_TIMEOUT_S", 1.0)
    check = runtime.tvm(modules("hanging_probe", "import time; time.sleep(60)"))
    assert (check.status, check.found) == ("broken", "no answer within 1 s")


def test_no_opencl_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(tmp_path / "absent.so"))
    check = runtime.opencl_library()
    assert (check.status, check.required) == ("optional", False)
    assert "pocl-opencl-icd" in check.fix


def test_opencl_runtime_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = runtime.opencl_sidecar()
    assert (check.status, check.required) == ("optional", False)
    assert "ensure(print)" in check.fix
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ended", "linker", "status", "found", "fix"),
    [
        (
            child.Finished(
                True, 'noise\n[{"name":"X","type":"gpu","platform":"P","driver":"1"}]\n'
            ),
            FINE,
            "ok",
            "X (gpu, P, driver 1)",
            "",
        ),
        (
            child.Finished(True, '{"error": "no device", "hint": "get one"}'),
            FINE,
            "optional",
            "no device",
            "get one",
        ),
        (
            child.Finished(False, "", "the process died by SIGABRT", "SIGABRT"),
            LACKING,
            "broken",
            "the process died by SIGABRT, as PoCL does without ld",
            LACKING.fix,
        ),
        (
            child.Finished(False, "", "the process died by SIGSEGV", "SIGSEGV", "no memory"),
            FINE,
            "broken",
            "the process died by SIGSEGV: no memory",
            "pocl-opencl-icd",
        ),
    ],
)
def test_opencl_devices(
    ended: child.Finished,
    linker: Check,
    status: str,
    found: str,
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "run_module", lambda *_, **__: ended)
    check = runtime.opencl_devices(FINE, FINE, linker)
    assert (check.status, check.found) == (status, found)
    assert fix in check.fix
    assert bool(fix) == bool(check.fix)


def test_opencl_devices_are_not_asked_without_a_library() -> None:
    check = runtime.opencl_devices(LACKING, FINE, FINE)
    assert (check.status, check.fix) == ("optional", LACKING.fix)


# The machine


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "not" / "there"
    check = machine.disk("disk", absent, "runs", "make room")
    assert check.status == "ok"
    assert check.found.endswith(f"GiB free in {absent}")
    assert not absent.parent.exists()
    monkeypatch.setattr(machine, "LEAST_FREE_BYTES", 2**80)
    full = machine.disk("disk", absent, "runs", "make room")
    assert (full.status, full.fix, full.required) == ("broken", "make room", False)


def test_disk_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("", encoding="utf-8")
    check = machine.disk("disk", tmp_path / "logs", "runs", "make room")
    assert (check.status, check.found) == ("broken", f"{tmp_path / 'logs'} cannot be written")


def test_cores(tmp_path: Path) -> None:
    assert machine.cores(tmp_path / "absent").status == "ok"
    for number, governor in enumerate(("powersave", "performance")):
        (tmp_path / f"policy{number}").mkdir()
        file = tmp_path / f"policy{number}" / "scaling_governor"
        file.write_text(f"{governor}\n", encoding="utf-8")
    mixed = machine.cores(tmp_path)
    assert mixed.status == "optional"
    assert mixed.found.endswith("governor performance, powersave")
    assert mixed.fix.startswith("echo performance | ")
    (tmp_path / "policy0" / "scaling_governor").write_text("performance\n", encoding="utf-8")
    assert machine.cores(tmp_path).status == "ok"


# The command


def play(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    monkeypatch.setattr(autotune.doctor, "run_checks", lambda: list(checks))


def test_doctor_is_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, FINE, LACKING)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "next: autotune kernels --model lenet\n"
    assert "Optional, to fix:\n  NDK (optional): not set\n    export NDK=FOLDER\n" in shown.out
    assert "Required" not in shown.out
    assert shown.out.endswith("\nReady to tune for this machine's processor.\n")


def test_doctor_is_not_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, FINE, LACKING, BROKEN)
    assert main(["doctor"]) == 4
    shown = capsys.readouterr().out
    assert "Required, to fix:\n  TVM (broken): died by SIGSEGV\n    pip install it\n" in shown
    assert shown.endswith("\nNot ready to tune for this machine's processor.\n")


@pytest.mark.parametrize(("checks", "code"), [((FINE, LACKING), 0), ((FINE, BROKEN), 4)])
def test_doctor_as_json(
    checks: tuple[Check, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play(monkeypatch, *checks)
    assert main(["doctor", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["ready"] is (code == 0)
    assert [check["name"] for check in answer["checks"]] == [check.name for check in checks]
    assert set(answer["checks"][0]) == {
        "name",
        "status",
        "found",
        "needed_for",
        "mend",
        "required",
    }


def test_nothing_tells_anybody_to_install_the_package_that_only_has_our_name() -> None:
    assert metadata.distribution(DISTRIBUTION).metadata["Name"] == DISTRIBUTION != "autotune"
    (command,) = metadata.distribution(DISTRIBUTION).entry_points.select(group="console_scripts")
    assert (command.name, command.value) == ("autotune", "autotune.cli.main:main")
    root = Path(__file__).parents[3]
    texts = [*root.glob("autotune/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md"]
    wrong = re.compile(r"autotune\[|pip3? install (--?\w+ )*[\"']?autotune(?![-\w])")
    assert [str(path) for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []
