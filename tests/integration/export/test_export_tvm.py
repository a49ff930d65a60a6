"""`autotune export --format tvm`: libraries that TVM's runtime loads from Python, C++ and over RPC."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import autotune
from exports import exported, said, untuned_variant, with_cluster

from autotune.compiler.native import native_build
from autotune.devices.ports import free_port
from autotune.workloads.spec import parse_kernel

MATMUL = "matmul:m=8,n=24,k=40"


@pytest.fixture(scope="module")
def library(matmul_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters of one target."""
    folder = tmp_path_factory.mktemp("tvm")
    little = with_cluster(matmul_run, folder / "little-run", "little")
    done = autotune("export", matmul_run, little, "--out", folder / "out")
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture
def server() -> Iterator[str]:
    """TVM's own RPC server."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1"),
            *("--port", str(port), "--port-end", str(port + 1)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not listens(port):
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def listens(port: int) -> bool:
    """Whether somebody waits there, without disturbing them."""
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in table)


def lines(text: str) -> list[tuple[str, str, str]]:
    found = [json.loads(line) for line in text.splitlines()]
    return [(one["variant"], one["role"], one["status"]) for one in found]


ALL = [
    (variant, role, "ok")
    for variant in ("cpu", "cpu_little")
    for role in ("data_grad", "forward", "weight_grad")
]


def test_a_library_a_target_and_cluster(library: Path) -> None:
    manifest = json.loads((library / "manifest.json").read_text())
    assert (manifest["schema_version"], manifest["format"], manifest["platform"]) == (
        2,
        "tvm",
        "any",
    )
    variants = {one["name"]: (one["library"], one["cluster"]) for one in manifest["variants"]}
    assert variants == {"cpu": ("lib/cpu.so", None), "cpu_little": ("lib/cpu_little.so", "little")}
    assert manifest["safe_variant"] is None  # whoever loads chooses
    kernel = manifest["kernels"][0]
    assert kernel["figures"]["cpu"]["tuned_ms"] > 0
    assert [one["direction"] for one in kernel["arguments"]] == ["in", "in", "out"]
    done = autotune("verify", library, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["results"]
    assert [(one["variant"], one["role"], one["status"]) for one in found] == ALL


def test_cpp_loads_it(library: Path, tmp_path: Path) -> None:
    for command in (
        [
            *("cmake", "-S", library / "example", "-B", tmp_path),
            f"-DTVM_ROOT={native_build.package_folder('tvm')}",
            f"-DTVM_FFI_ROOT={native_build.package_folder('tvm_ffi')}",
        ],
        ["cmake", "--build", tmp_path],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert said(tmp_path / "check").count("largest relative error") == len(ALL)


def test_rpc_loads_it(library: Path, server: str) -> None:
    command = [
        sys.executable,
        library / "example" / "example.py",
        "--rpc",
        server,
        "--variant",
        "cpu",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == [one for one in ALL if one[0] == "cpu"]


def test_kernels_of_all_kinds_of_targets_go_into_one_export(tmp_path: Path) -> None:
    kernel = parse_kernel(MATMUL, "forward")
    variants = [
        untuned_variant(name, [kernel], name.replace("-", "_"))
        for name in ("cpu", "arm-cpu", "opencl")
    ]
    manifest = exported(variants, tmp_path / "out", "tvm")
    assert [one["family"] for one in manifest["variants"]] == ["cpu", "aarch64", "opencl"]
    done = autotune("verify", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_licences_are_there(library: Path) -> None:
    assert "Apache License" in (library / "LICENSE").read_text()
    assert "Apache TVM" in (library / "licenses" / "NOTICE.tvm").read_text()
    assert "Apache TVM" in (library / "NOTICE").read_text()
