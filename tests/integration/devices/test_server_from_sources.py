"""The device server with TVM's runtime compiled in: what Android gets, on this host and on emulated aarch64 Linux.

A build of it takes half a minute, once for the present sources; sessions take seconds. It is built without
optimisation, in less time, and kept with pytest's cache: none but these tests may get it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from fleets import local_fleet
from tvm import rpc, te

from autotune.compiler.native import device_server, native_build, opencl_sidecar
from autotune.compiler.runners.build_worker import linker
from autotune.tracker import TrackerLink

ROOT = Path(__file__).resolve().parents[3]
ARM = "aarch64-linux-gnu"
KEY = "sources"
PLATFORMS = ("host", "linux-aarch64")
TRIPLES = {"host": "", "linux-aarch64": ARM}
N = 4096

# A kernel library in C: how many threads of TVM's pool take part in a parallel loop; and a crash.
# What it calls must be found in the server's program.
THREADS = r"""
#include <pthread.h>
#include <tvm/ffi/c_api.h>
#include <tvm/runtime/c_backend_api.h>

static pthread_t seen[64];

static int note(int task, TVMParallelGroupEnv*, void*) {
  seen[task] = pthread_self();
  return 0;
}

extern "C" int __tvm_ffi_threads(void*, const TVMFFIAny* args, int, TVMFFIAny* result) {
  const int tasks = static_cast<int>(args[0].v_int64);
  if (TVMBackendParallelLaunch(note, nullptr, tasks) != 0) return -1;
  int different = 0;
  for (int i = 0; i < tasks; ++i) {
    bool known = false;
    for (int j = 0; j < i; ++j) known = known || pthread_equal(seen[i], seen[j]);
    different += !known;
  }
  result->type_index = kTVMFFIInt;
  result->v_int64 = different;
  return 0;
}

extern "C" int __tvm_ffi_fail(void*, const TVMFFIAny*, int, TVMFFIAny*) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", "so it was asked");
  return -1;
}

extern "C" int __tvm_ffi_crash(void*, const TVMFFIAny*, int, TVMFFIAny*) {
  *(volatile int*)0 = 1;
  return 0;
}
"""

# A stand-in for a vendor's OpenCL driver that writes down which process opened it.
SPY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void opened(void) {
  FILE* file = fopen(getenv("SPY_FILE"), "a");
  fprintf(file, "%d\n", (int)getpid());
  fclose(file);
}
"""


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.fixture(scope="module", params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    if chosen != "host":
        need(f"{ARM}-g++", "qemu-aarch64-static")
    return chosen


@pytest.fixture(scope="module")
def built(platform: str, request: pytest.FixtureRequest) -> Path:
    """The folder of the server."""
    return built_for(platform, request.config)


def built_for(platform: str, config: pytest.Config) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMAKE_BUILD_TYPE", "None")
        patch.setenv("CXXFLAGS", "-O0")
        patch.setenv("XDG_CACHE_HOME", str(config.cache.mkdir("server-from-sources")))
        return device_server.bundle(platform, runtime="sources")


@pytest.fixture(scope="module")
def bundle(platform: str, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose program runs on this host, under qemu where it is another machine's."""
    if platform == "host":
        return built
    folder = tmp_path_factory.mktemp("emulated")
    shutil.copy(built / device_server.PROGRAM, folder / "program")
    wrapper = folder / device_server.PROGRAM
    wrapper.write_text(
        '#!/bin/sh\nprogram="$(dirname "$0")/program"\nchmod 755 "$program"\n'
        f'exec qemu-aarch64-static -L /usr/{ARM} "$program" "$@"\n'
    )
    wrapper.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def tracker(
    platform: str, bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TrackerLink]:
    emulated = "" if platform == "host" else "qemu-user"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with local_fleet(KEY, bundle=bundle, emulated=emulated) as link:
            yield link


def open_session(tracker: TrackerLink) -> Any:
    asked = rpc.connect_tracker(tracker.host, tracker.port)
    try:
        return asked.request(KEY, session_timeout=100)
    finally:
        asked.close()


@pytest.fixture
def session(tracker: TrackerLink) -> Any:
    return open_session(tracker)


@pytest.fixture(scope="module")
def kernel(platform: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = 2 x + 1 with a parallel loop."""
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: x[i] * 2.0 + 1.0, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    outer, _ = schedule.split(loop, [8, None])
    schedule.parallel(outer)
    host = {"kind": "llvm"}
    if TRIPLES[platform]:
        host["mtriple"] = TRIPLES[platform]
    module = tvm.compile(schedule.mod, tvm.target.Target(host, host=host))
    path = tmp_path_factory.mktemp("kernel") / "kernel.so"
    module.export_library(str(path), fcompile=linker(TRIPLES[platform], fast=True))
    return path


@pytest.fixture(scope="module")
def threads(platform: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    compile_cc(folder, THREADS, f"{ARM}-g++" if platform != "host" else "g++", folder / "own.so")
    return folder / "own.so"


def compile_cc(folder: Path, code: str, compiler: str, output: Path) -> None:
    source = folder / "own.cc"
    source.write_text(code)
    include = [
        word
        for package in ("tvm", "tvm_ffi")
        for word in ("-isystem", str(native_build.package_folder(package) / "include"))
    ]
    command = [compiler, "-std=c++17", "-shared", "-fPIC", *include, "-o", output, source]
    subprocess.run(command, check=True)


def load(session: Any, path: Path) -> Any:
    session.upload(bytearray(path.read_bytes()), path.name)
    library = session.load_module(path.name)
    session.remove(path.name)  # What is loaded stays, and must not be written over.
    return library


@pytest.mark.slow
def test_it_is_one_program_of_its_machine(platform: str, built: Path, bundle: Path) -> None:
    assert [file.name for file in built.iterdir()] == [device_server.PROGRAM]
    elf = (built / device_server.PROGRAM).read_bytes()
    assert elf[:4] == b"\x7fELF"
    assert b"libtvm" not in elf  # Of the libraries that it would need.
    assert len(elf) < 6e6  # Without optimisation.
    done = subprocess.run([bundle / device_server.PROGRAM, "--version"], capture_output=True)
    assert done.stdout.startswith(b"autotune_server ")


@pytest.mark.slow
def test_a_kernel_runs_is_right_and_is_timed(session: Any, kernel: Path) -> None:
    library = load(session, kernel)
    device = session.cpu(0)
    x = np.random.default_rng(1).random(N, np.float32)
    given, out = tvm.runtime.tensor(x, device), tvm.runtime.tensor(np.zeros_like(x), device)
    library["main"](given, out)
    np.testing.assert_allclose(out.numpy(), 2 * x + 1, rtol=1e-6)
    timed = library.time_evaluator("main", device, number=3, repeat=4)(given, out)
    assert len(timed.results) == 4
    assert all(0 < seconds < 1 for seconds in timed.results)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 1023, 3_000_001])
def test_data_of_any_size_comes_back_as_it_went(session: Any, count: int) -> None:
    data = np.random.default_rng(count).integers(0, 255, count, np.uint8)
    array = tvm.runtime.tensor(data, session.cpu(0))
    np.testing.assert_array_equal(array.numpy(), data)
    session.upload(bytearray(data), "data.bin")
    assert bytes(session.download("data.bin")) == data.tobytes()


@pytest.mark.slow
def test_threads_are_those_that_were_asked_for(session: Any, threads: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))[:2]
    cores = ",".join(map(str, mine))
    given = str(session.get_function("autotune.server.bind_threads")(cores, 2))
    assert given.replace("-", ",").split(",") == [str(core) for core in mine]
    counted = load(session, threads)["threads"]
    assert counted(2) == 2


@pytest.mark.slow
def test_an_error_of_a_kernel_leaves_the_session_alive(session: Any, threads: Path) -> None:
    library = load(session, threads)
    with pytest.raises(Exception, match="so it was asked"):
        library["fail"]()
    assert library["threads"](1) == 1
    with pytest.raises(Exception, match="not a file of this session"):
        session.upload(bytearray(b"x"), "../outside")


@pytest.mark.slow
def test_a_crash_is_remembered_and_the_next_session_is_served(
    tracker: TrackerLink, threads: Path
) -> None:
    before = tracker.served(KEY)[0].crashes
    first = open_session(tracker)
    library = load(first, threads)
    first.get_function("autotune.server.candidate")("deadly")
    with pytest.raises(Exception, match=r"closes before|reset|kShutdown"):
        library["crash"]()
    second = open_session(tracker)
    crashes = json.loads(str(second.get_function("autotune.server.crashes")()))
    assert len(crashes) == before + 1
    assert (crashes[-1]["cause"], crashes[-1]["candidate"]) == ("SIGSEGV", "deadly")
    assert load(second, threads)["threads"](1) == 1


@pytest.mark.slow
def test_its_opencl_is_in_it(platform: str, session: Any, tmp_path: Path) -> None:
    if not native_build.has_opencl_headers():
        pytest.skip("the OpenCL headers are not installed")
    info = json.loads(str(session.get_function("autotune.server.info")()))
    assert info["opencl"] is True
    assert info["emulated"] == ("" if platform == "host" else "qemu-user")
    found = json.loads(str(session.get_function("autotune.opencl.devices")()))
    if platform != "host":  # There is no driver for it here.
        assert found["devices"] == []
        assert "no OpenCL library" in found["reason"]
        return
    if not found["devices"]:
        pytest.skip("no OpenCL driver on this machine")
    opencl_sidecar.ensure()  # The compiler's half, on this side.
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: x[i] * 2.0 + 1.0, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    outer, inner = schedule.split(loop, [None, 64])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    target = tvm.target.Target("opencl", host={"kind": "llvm"})
    path = tmp_path / "opencl.so"
    tvm.compile(schedule.mod, target).export_library(str(path), fcompile=linker("", fast=True))
    library = load(session, path)
    device = session.device("opencl", 0)
    x_host = np.arange(N, dtype=np.float32)
    given = tvm.runtime.tensor(x_host, device)
    out = tvm.runtime.tensor(np.zeros_like(x_host), device)
    library["main"](given, out)
    np.testing.assert_allclose(out.numpy(), 2 * x_host + 1)
    timed = library.time_evaluator("main", device, number=2)(given, out)
    assert timed.mean > 0


@contextmanager
def bare_server(program: Path, folder: Path, **environment: str) -> Iterator[tuple[int, int]]:
    """Process and port of a server without a tracker."""
    server = subprocess.Popen(
        [program, "--dir", folder, "--key", KEY],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        assert server.stdout is not None
        word, port = server.stdout.readline().split()
        assert word == "ok"
        yield server.pid, int(port)
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.mark.slow
def test_no_driver_is_opened_before_the_fork(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not native_build.has_opencl_headers():
        pytest.skip("the OpenCL headers are not installed")
    program = built_for("host", request.config) / device_server.PROGRAM
    spy, opened = tmp_path / "spy.so", tmp_path / "opened"
    (tmp_path / "spy.c").write_text(SPY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", spy, tmp_path / "spy.c"], check=True)
    own = {"AUTOTUNE_OPENCL_LIBRARY": str(spy), "SPY_FILE": str(opened)}
    with bare_server(program, tmp_path / "server", **own) as (pid, port):
        for sessions in (1, 2):
            session = rpc.connect("127.0.0.1", port, key=KEY)
            assert len(opened.read_text().split() if opened.exists() else []) == sessions - 1
            found = json.loads(str(session.get_function("autotune.opencl.devices")()))
            assert "spy.so" in found["reason"]
            del session
        processes = opened.read_text().split()
    assert len(set(processes)) == 2
    assert str(pid) not in processes


@pytest.mark.exhaustive  # Another build of the same sources.
@pytest.mark.slow
def test_the_way_of_an_ndk_with_a_stand_in_that_is_no_ndk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOT an NDK: its toolchain file names the aarch64 Linux compiler, and the result is a Linux program.

    What is seen here is that `--for android-arm64` finds the folder, gives CMake what an NDK wants to know,
    builds from sources and leaves one aarch64 program.
    """
    need(f"{ARM}-g++")
    toolchain = tmp_path / "ndk" / "build" / "cmake" / "android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    wanted = {
        "ANDROID_ABI": "arm64-v8a",
        "ANDROID_PLATFORM": "android-24",
        "ANDROID_STL": "c++_static",
    }
    asked = "".join(
        f'if(NOT {name} STREQUAL "{value}")\n  message(FATAL_ERROR "{name}=${{{name}}}")\nendif()\n'
        for name, value in wanted.items()
    )
    real = native_build.rpc_sources() / "cmake" / "aarch64-linux-gnu.cmake"
    # The program is not run: it need not be fast.
    plain = 'set(CMAKE_CXX_FLAGS_RELEASE "-O0 -DNDEBUG" CACHE STRING "")\n'
    toolchain.write_text(
        f"set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES {' '.join(wanted)})\n{asked}{plain}include({real})\n"
    )
    (tmp_path / "ndk" / "source.properties").write_text("Pkg.Revision = 27.2.12479018\n")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path / "ndk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said: list[str] = []
    folder = device_server.bundle("android-arm64", said.append)
    (program,) = folder.iterdir()
    assert program.name == device_server.PROGRAM
    header = program.read_bytes()[:20]
    assert header[:6] == b"\x7fELF\x02\x01"
    assert int.from_bytes(header[18:20], "little") == 183  # AArch64
    assert sum("compiling" in line for line in said) == 1
    said.clear()
    assert device_server.bundle("android-arm64", said.append) == folder
    assert said == []


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that checks our headers against the wheel's own runtime."""
    packages = {name: native_build.package_folder(name) for name in ("tvm", "tvm_ffi")}
    libraries = {"tvm": "tvm_runtime", "tvm_ffi": "tvm_ffi"}
    program = tmp_path_factory.mktemp("shims") / "shims"
    command: list[object] = [
        *("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"),
        *("-I", native_build.rpc_sources() / "runtime_shims"),
        *(w for path in packages.values() for w in ("-isystem", path / "include")),
        *(ROOT / "tests" / "data" / "runtime_shims.cc", "-o", program, "-Wl,--no-as-needed"),
        *(w for name, path in packages.items() for w in (f"-L{path}/lib", f"-l{libraries[name]}")),
        *(f"-Wl,-rpath,{path}/lib" for path in packages.values()),
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_our_headers_do_what_the_wheels_runtime_does(shims: Path) -> None:
    done = subprocess.run([shims], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_half_precision_is_converted_as_numpy_does(shims: Path) -> None:
    done = subprocess.run([shims, "halves"], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    halves = np.array([line for line in lines if len(line) == 2], dtype=np.uint32)
    assert len(halves) == 65536
    expected = halves[:, 0].astype(np.uint16).view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(halves[:, 1].view(np.float32), expected)
    singles = np.array([line for line in lines if len(line) == 3], dtype=np.uint32)
    with np.errstate(over="ignore"):
        wanted = np.ascontiguousarray(singles[:, 0]).view(np.float32).astype(np.float16)
    for column in (1, 2):
        found = singles[:, column].astype(np.uint16).view(np.float16)
        np.testing.assert_array_equal(found, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))
