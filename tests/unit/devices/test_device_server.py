"""What is built for whom, and what is said where that is impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.compiler.native import device_server, native_build, platforms
from autotune.compiler.native.native_build import NativePart
from autotune.errors import ToolchainError, UsageError

TOOLCHAIN = "build/cmake/android.toolchain.cmake"


@pytest.fixture(autouse=True)
def no_ndk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_NDK_HOME", raising=False)
    monkeypatch.delenv("ANDROID_NDK_ROOT", raising=False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[NativePart]:
    """The parts that were asked for; each is an empty file here."""
    parts: list[NativePart] = []

    def ensure_built(part: NativePart, _log: object = None) -> Path:
        parts.append(part)
        path = tmp_path / str(len(parts)) / Path(part.artifact).name
        path.parent.mkdir()
        path.touch()
        return path

    monkeypatch.setattr(native_build, "ensure_built", ensure_built)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache" / "autotune" / "server").mkdir(parents=True)
    return parts


def ndk(folder: Path, properties: str = "Pkg.Revision = 27.2.12479018\n") -> Path:
    (folder / TOOLCHAIN).parent.mkdir(parents=True)
    (folder / TOOLCHAIN).touch()
    if properties:
        (folder / "source.properties").write_text(f"Pkg.Desc = Android NDK\n{properties}")
    return folder


def test_without_an_ndk_android_is_refused_with_how_to_get_one() -> None:
    with pytest.raises(ToolchainError, match="neither ANDROID_NDK_HOME nor") as caught:
        device_server.bundle("android-arm64")
    assert caught.value.exit_code == 4
    assert "sdkmanager --install 'ndk;" in caught.value.hint


@pytest.mark.parametrize("variable", ["ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"])
def test_a_folder_that_is_no_ndk_is_named_with_its_variable(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(ToolchainError, match=f"{variable} is .*{TOOLCHAIN}") as caught:
        device_server.bundle("android-arm64")
    assert caught.value.exit_code == 4
    assert "own folder" in caught.value.hint


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ("", "names no revision"),
        ("Pkg.Revision = new\n", "names no revision"),
        ("Pkg.Revision = 21.4.7075529\n", "needs r22 or newer"),
    ],
)
def test_an_ndk_that_is_damaged_or_too_old_is_refused(
    properties: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANDROID_NDK_HOME", str(ndk(tmp_path / "ndk", properties)))
    with pytest.raises(ToolchainError, match=complaint):
        device_server.bundle("android-arm64")


def test_the_ndk_builds_one_program_from_sources(
    asked: list[NativePart], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ndk(tmp_path / "ndk")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(folder))
    built = device_server.bundle("android-arm64")
    assert [file.name for file in built.iterdir()] == ["autotune_server"]
    (part,) = asked
    assert part.toolchain == str(folder / TOOLCHAIN)
    assert "ndk27.2.12479018" in part.variant
    definitions = dict(part.definitions)
    assert definitions["AUTOTUNE_RUNTIME"] == "sources"
    assert definitions["ANDROID_ABI"] == "arm64-v8a"
    assert definitions["ANDROID_PLATFORM"] == "android-24"
    assert definitions["ANDROID_STL"] == "c++_static"


def test_builds_of_one_part_do_not_share_a_place_in_the_cache(
    asked: list[NativePart], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in ("26.1.10909125", "27.2.12479018"):
        folder = ndk(tmp_path / revision, f"Pkg.Revision = {revision}\n")
        monkeypatch.setenv("ANDROID_NDK_HOME", str(folder))
        device_server.bundle("android-arm64")
    for opencl in (True, False):
        monkeypatch.setattr(native_build, "has_opencl_headers", lambda there=opencl: there)
        for wanted in ("host", "linux-aarch64"):
            device_server.bundle(wanted, runtime="sources")
    paths = {native_build.artifact_path(part) for part in asked}
    assert len(paths) == len(asked) == 6


def test_without_the_headers_of_opencl_it_is_said(
    asked: list[NativePart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_build, "has_opencl_headers", lambda: False)
    said: list[str] = []
    device_server.bundle("host", said.append, runtime="sources")
    assert dict(asked[0].definitions)["AUTOTUNE_SERVER_OPENCL"] == "OFF"
    assert "opencl-headers" in said[0]


def test_there_is_no_wheel_for_android() -> None:
    with pytest.raises(UsageError, match="no wheel"):
        device_server.bundle("android-arm64", runtime="wheel")


@pytest.mark.parametrize(
    ("abi", "android", "wanted"),
    [
        ("arm64-v8a", True, "android-arm64"),
        ("aarch64", False, "linux-aarch64"),
        ("x86_64", False, "host"),
    ],
)
def test_a_device_is_known_by_its_abi(
    abi: str, android: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert platforms.platform_of(abi, android=android) == wanted


def test_a_32_bit_device_is_refused() -> None:
    with pytest.raises(ToolchainError, match="armeabi-v7a on Android"):
        platforms.platform_of("armeabi-v7a", android=True)
