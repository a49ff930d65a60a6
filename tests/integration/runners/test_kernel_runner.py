"""The kernel runner: tuned CPU kernels without TVM, on this machine and for ARM under emulation."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from autotune.compiler.native import kernel_runner
from autotune.errors import ToolchainError, UsageError

TRIPLES = get_args(kernel_runner.Triple)
# What each triple is compiled for; the plain names keep to what every such machine has.
TARGETS = {
    "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu"},
    "aarch64-linux-gnu": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"},
}
LINKERS = {"host": "gcc", "aarch64-linux-gnu": "aarch64-linux-gnu-gcc"}

Array = np.ndarray[Any, Any]


def convolution() -> Any:
    """A 3x3 convolution and a square root, parallel and vectorised, with a padded workspace."""
    import tvm
    from tvm import te

    x = te.placeholder((2, 5, 8, 8), name="X")
    w = te.placeholder((16, 5, 3, 3), name="W")
    padded = te.compute(
        (2, 5, 10, 10),
        lambda n, c, i, j: te.if_then_else(
            te.all(i >= 1, i < 9, j >= 1, j < 9), x[n, c, i - 1, j - 1], 0.0
        ),
        name="padded",
    )
    c = te.reduce_axis((0, 5), name="c")
    kh = te.reduce_axis((0, 3), name="kh")
    kw = te.reduce_axis((0, 3), name="kw")
    conv = te.compute(
        (2, 16, 8, 8),
        lambda n, o, i, j: te.sum(padded[n, c, i + kh, j + kw] * w[o, c, kh, kw], axis=[c, kh, kw]),
        name="conv",
    )
    out = te.compute((2, 16, 8, 8), lambda *i: te.sqrt(te.abs(conv[i])) + 1.0, name="out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, w, out]))
    for name in ("conv", "out"):
        loops = schedule.get_loops(schedule.get_sblock(name))
        schedule.parallel(schedule.fuse(loops[0], loops[1]))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("out"))[-1])
    return schedule.mod


def convolution_expected(x: Array, w: Array) -> Array:
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.sqrt(np.abs(np.einsum("ncijkl,ockl->noij", windows, w))) + 1.0)


def export(module: Any, triple: str, path: Path) -> Path:
    import tvm
    from tvm.support import cc

    target = TARGETS[triple]
    library = tvm.compile(module, target=tvm.target.Target(target, host=target))
    library.export_library(str(path), fcompile=cc.cross_compiler(LINKERS[triple]))
    return path


@pytest.fixture(scope="session", params=TRIPLES)
def triple(request: pytest.FixtureRequest) -> kernel_runner.Triple:
    chosen: kernel_runner.Triple = request.param
    if chosen != "host":
        for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64-static"):
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is not installed")
    return chosen


@pytest.fixture(scope="session")
def library(triple: kernel_runner.Triple, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(convolution(), triple, tmp_path_factory.mktemp(triple) / "conv.so")


def run(triple: kernel_runner.Triple, *words: object) -> dict[str, Any]:
    done = subprocess.run(
        [*kernel_runner.command(triple), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Array, Array, list[object]]:
    """Two inputs and the words that name them and the output."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 8, 8), dtype=np.float32)
    w = rng.standard_normal((16, 5, 3, 3), dtype=np.float32)
    x.tofile(tmp_path / "x.bin")
    w.tofile(tmp_path / "w.bin")
    words: list[object] = [
        *("--arg", f"f32:2x5x8x8:{tmp_path / 'x.bin'}"),
        *("--arg", f"f32:16x5x3x3:{tmp_path / 'w.bin'}"),
        *("--out", f"f32:2x16x8x8:{tmp_path / 'out.bin'}"),
    ]
    return x, w, words


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_and_times(
    triple: kernel_runner.Triple,
    library: Path,
    inputs: tuple[Array, Array, list[object]],
    tmp_path: Path,
    threads: int,
) -> None:
    x, w, words = inputs
    words = [*words, "--threads", threads, "--repeat", 5, "--min-repeat-ms", 2]
    found = run(triple, library, "main", *words)
    assert found["status"] == "ok"
    assert found["output_files"] == [str(tmp_path / "out.bin")]
    assert len(found["seconds"]) == 5
    assert all(0 < seconds < 1 and math.isfinite(seconds) for seconds in found["seconds"])
    out = np.fromfile(tmp_path / "out.bin", "float32").reshape(2, 16, 8, 8)
    # The square root is steep near zero: an error of 1e-6 there becomes one of 1e-3.
    np.testing.assert_allclose((out - 1) ** 2, (convolution_expected(x, w) - 1) ** 2, atol=1e-4)


def test_an_output_that_is_not_written_stays_poisoned(
    triple: kernel_runner.Triple, tmp_path: Path
) -> None:
    import tvm

    text = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "int32")):
    for i in range(2):
        B[i] = A[i]
        C[i] = 7
"""
    function = tvm.script.from_source(text)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    path = export(module, triple, tmp_path / "half.so")
    np.arange(4, dtype="float32").tofile(tmp_path / "a.bin")
    found = run(
        *(triple, path, "__tvm_ffi_main", "--repeat", 0),
        *("--arg", f"f32:4:{tmp_path / 'a.bin'}"),
        *("--out", f"f32:4:{tmp_path / 'b.bin'}", "--out", f"i32:4:{tmp_path / 'c.bin'}"),
    )
    assert found["status"] == "ok"
    assert found["seconds"] == []
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "b.bin", "float32"), [0, 1, math.nan, math.nan]
    )
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "c.bin", "int32"), [7, 7, 0x7F7F7F7F, 0x7F7F7F7F]
    )


def test_errors_of_the_run(
    triple: kernel_runner.Triple, library: Path, inputs: tuple[Array, Array, list[object]]
) -> None:
    _, _, words = inputs
    for arguments, message in (
        ((library, "main", *words[:2]), "Expected 3 arguments"),
        ((library, "main", *words[2:4], *words[:2], *words[4:]), "argument #0"),
        ((library, "other", *words), "neither other nor __tvm_ffi_other"),
        ((library.with_name("none.so"), "main"), "none.so"),
        ((library, "main", "--arg", f"f32:9:{library}"), "bytes, not 36"),
        ((library, "main", "--arg", "f32:9:/nonexistent"), "/nonexistent"),
    ):
        found = run(triple, *arguments)
        assert found["status"] == "run_error"
        assert message in found["message"]


def test_a_kernel_that_crashes(triple: kernel_runner.Triple, tmp_path: Path) -> None:
    source, library = tmp_path / "crash.c", tmp_path / "crash.so"
    source.write_text(
        "int __tvm_ffi_main(void *s, void *a, int n, void *r)"
        "{ (void)s; (void)a; (void)n; (void)r; *(volatile int *)8 = 1; return 0; }\n"
    )
    subprocess.run(
        [LINKERS[triple], "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    found = run(triple, library, "main")
    assert found == {"status": "run_error", "message": "the kernel died of SIGSEGV"}


def test_a_parallel_loop_with_barriers_and_nesting(
    triple: kernel_runner.Triple, tmp_path: Path
) -> None:
    # What TVM's code generator can emit but rarely does, so it is written by hand.
    source, library = tmp_path / "loop.c", tmp_path / "loop.so"
    source.write_text(
        """
#include <stdint.h>
typedef struct { void *sync; int32_t num_task; } Env;
typedef int (*Lambda)(int, Env *, void *);
int (*__TVMBackendParallelLaunch)(Lambda, void *, int);
int (*__TVMBackendParallelBarrier)(int, Env *);
static int before[64], after[64], inner[64];
static int count(int id, Env *env, void *data) {
  (void)id;
  *(int *)data += env->num_task;
  return 0;
}
static int task(int id, Env *env, void *data) {
  (void)data;
  before[id] = 1;
  if (__TVMBackendParallelBarrier(id, env)) return -1;
  for (int i = 0; i < env->num_task; ++i) after[id] += before[i];
  __TVMBackendParallelBarrier(id, env);
  before[id] = 0;
  return __TVMBackendParallelLaunch(count, &inner[id], 0);
}
int __tvm_ffi_main(void *s, void *a, int n, void *r) {
  (void)s; (void)a; (void)n; (void)r;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 4; ++i) after[i] = inner[i] = 0;
    if (__TVMBackendParallelLaunch(task, 0, 4)) return -1;
    for (int i = 0; i < 4; ++i) if (after[i] != 4 || inner[i] != 1) return -1;
  }
  return 0;
}
"""
    )
    subprocess.run(
        [LINKERS[triple], "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    found = run(triple, library, "main", "--threads", 4)
    assert found["status"] == "ok", found
    found = run(triple, library, "main", "--threads", 3)
    assert "wants 4 threads" in found["message"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["lib.so"],
        ["lib.so", "main", "--arg"],
        ["lib.so", "main", "--arg", "f32:4"],
        ["lib.so", "main", "--arg", "f31:4:x"],
        ["lib.so", "main", "--arg", "f32:4xx4:x"],
        ["lib.so", "main", "--arg", "f32:-4:x"],
        ["lib.so", "main", "--threads", "0"],
        ["lib.so", "main", "--repeat", "1.5"],
        ["lib.so", "main", "--min-repeat-ms", "nan"],
        ["lib.so", "main", "--unknown", "1"],
    ],
)
def test_a_wrong_command_line(words: list[str]) -> None:
    done = subprocess.run(
        [*kernel_runner.command("host"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage:" in done.stderr


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = kernel_runner.ensure("host")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    # The emulator, with the program there already.
    monkeypatch.setattr(kernel_runner, "ensure", lambda triple, log=None: program)
    with pytest.raises(ToolchainError) as caught:
        kernel_runner.command("aarch64-linux-gnu")
    assert caught.value.hint == "sudo apt install qemu-user-static"
    monkeypatch.undo()
    # The cross compiler, with an empty cache.
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "cmake").write_text("#!/bin/sh\n")
    (tmp_path / "cmake").chmod(0o755)
    with pytest.raises(ToolchainError) as caught:
        kernel_runner.ensure("aarch64-linux-gnu")
    assert caught.value.hint == "sudo apt install g++-aarch64-linux-gnu"


def test_an_unknown_machine() -> None:
    with pytest.raises(UsageError, match="riscv64"):
        kernel_runner.ensure("riscv64-linux-gnu")  # type: ignore[arg-type]  # What a user may type.
