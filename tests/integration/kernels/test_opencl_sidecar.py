"""The OpenCL runtime sidecar on a real OpenCL: PoCL on the CPU, or whatever comes first here."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import forked
from opencl_drivers import driver

from autotune.compiler.native import native_build, opencl_sidecar
from autotune.errors import ToolchainError

ROOT = Path(__file__).resolve().parents[3]
HOST = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}

# A function of two kernels, with the first one's result in a workspace on the device.
TWO_KERNELS = """
import numpy as np
import tvm
from tvm import te

def two_kernels(n, threads):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] * 2.0, name="C")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, c]))
    for block in ("B", "C"):
        (loop,) = schedule.get_loops(schedule.get_sblock(block))
        outer, inner = schedule.split(loop, [None, threads])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
    target = {"kind": "opencl", "max_threads_per_block": 8192}
    return tvm.compile(schedule.mod, target=tvm.target.Target(target, host=HOST))
"""


@pytest.fixture(scope="session")
def tvm() -> Any:
    """TVM with the sidecar in it."""
    import tvm

    opencl_sidecar.ensure()
    return tvm


@pytest.fixture
def dev(tvm: Any) -> Any:
    return tvm.device("opencl", 0)


def two_kernels(n: int, threads: int) -> Any:
    names: dict[str, Any] = {"HOST": HOST}
    exec(TWO_KERNELS, names)
    return names["two_kernels"](n, threads)


def two_kernels_expected(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray((a[::-1].astype("float64") + 1.0) * 2.0)


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def child_json(code: str, **environment: str) -> Any:
    """Runs Python code whose last printed line is JSON."""
    done = child(code, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def metadata_of(name: str, arguments: list[str], tags: list[str]) -> Any:
    """Makes the function table that TVM's code generator makes."""
    import tvm_ffi

    info = {
        "name": name,
        "arg_types": arguments,
        "launch_param_tags": tags,
        "arg_extra_tags": [0] * len(arguments),
    }
    text = json.dumps({"func_info": {name: info}})
    return tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(text)


def module_of(source: str, name: str, arguments: list[str], tags: list[str]) -> Any:
    import tvm_ffi

    create = tvm_ffi.get_global_func("ffi.Module.create.opencl")
    code = f"// Function: {name}\n{source}".encode()
    return create(code, "cl", metadata_of(name, arguments, tags), {})


def library_blob(path: Path) -> bytes:
    """The saved OpenCL module inside an exported library."""
    content = path.read_bytes()
    marker = (6).to_bytes(8, "little") + b"opencl"
    start = content.index(marker) + len(marker)
    size = int.from_bytes(content[start : start + 8], "little")
    return content[start + 8 : start + 8 + size]


class TestDevices:
    def test_describes_the_devices_that_tvm_sees(self, tvm: Any) -> None:
        found = opencl_sidecar.devices()
        assert [device.index for device in found] == list(range(len(found)))
        order = [{"gpu": 0, "accelerator": 1}.get(device.type, 2) for device in found]
        assert order == sorted(order)
        for device in found:
            seen = tvm.device("opencl", device.index)
            assert seen.exist
            assert seen.device_name == device.name
            assert seen.max_threads_per_block == device.max_work_group_size
            assert seen.max_shared_memory_per_block == device.local_mem_bytes
            assert seen.multi_processor_count == device.compute_units
            assert tuple(seen.max_thread_dimensions) == device.max_work_item_sizes
            assert seen.max_clock_rate == device.max_clock_mhz * 1000
            assert seen.total_global_memory == device.global_mem_bytes
            assert seen.warp_size == max(device.sub_group_size, 1)
            assert device.local_mem_type in ("local", "global")
        assert not tvm.device("opencl", len(found)).exist

    def test_a_gpu_before_opencl_3_tells_its_sub_group_size_of_a_kernel(
        self, tmp_path: Path
    ) -> None:
        found = child_json(
            """
            import json
            from autotune.compiler.native import opencl_sidecar
            opencl_sidecar.ensure()
            print(json.dumps([[one.type, one.sub_group_size] for one in opencl_sidecar.devices()]))
            """,
            AUTOTUNE_OPENCL_LIBRARY=str(driver(tmp_path)),
            OLD_GPU="1",
        )
        assert found
        assert all(one == ["gpu", 48] for one in found)

    def test_a_device_that_does_not_exist_is_named(self, tvm: Any) -> None:
        with pytest.raises(RuntimeError, match="no device 99"):
            tvm.runtime.empty((4,), "float32", tvm.device("opencl", 99))


class TestKernels:
    @pytest.mark.parametrize("n", [1, 37, 1024, 4099])
    def test_two_kernels_with_a_workspace(self, tvm: Any, dev: Any, n: int) -> None:
        library = two_kernels(n, 16)
        a = np.random.default_rng(n).random(n, dtype=np.float32)
        out = tvm.runtime.empty((n,), "float32", dev)
        for _ in range(3):  # The second and third call take the workspace from the pool.
            library["main"](tvm.runtime.tensor(a, dev), out)
        np.testing.assert_allclose(out.numpy(), two_kernels_expected(a), rtol=1e-6)

    def test_vector_add_in_two_dimensions(self, tvm: Any, dev: Any) -> None:
        from tvm import te

        a = te.placeholder((30, 70), name="A")
        b = te.placeholder((30, 70), name="B")
        c = te.compute((30, 70), lambda i, j: a[i, j] + b[i, j], name="C")
        schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))
        y, x = schedule.get_loops(schedule.get_sblock("C"))
        for loop, axis, extent in ((y, "y", 4), (x, "x", 32)):
            outer, inner = schedule.split(loop, [None, extent])
            schedule.bind(outer, f"blockIdx.{axis}")
            schedule.bind(inner, f"threadIdx.{axis}")
        target = tvm.target.Target({"kind": "opencl", "max_threads_per_block": 128}, host=HOST)
        library = tvm.compile(schedule.mod, target=target)
        left, right = np.random.default_rng(0).random((2, 30, 70), dtype=np.float32)
        out = tvm.runtime.empty((30, 70), "float32", dev)
        library["main"](tvm.runtime.tensor(left, dev), tvm.runtime.tensor(right, dev), out)
        np.testing.assert_array_equal(out.numpy(), left + right)

    def test_scalar_arguments_of_every_width(self, tvm: Any, dev: Any) -> None:
        source = """
        __kernel void scalars(__global double* out, int i, uint u, long l, float f, double d) {
          out[get_global_id(0)] = (double)i + (double)u + (double)l + f + d;
        }
        """
        arguments = ["handle", "int32", "uint32", "int64", "float32", "float64"]
        module = module_of(source, "scalars", arguments, ["blockIdx.x", "threadIdx.x"])
        function = module.get_function("scalars")
        out = tvm.runtime.empty((6,), "float64", dev)
        handle = ctypes.c_void_p(out.data_ptr())
        function(handle, -7, 5, 1 << 40, 0.5, 0.25, 2, 3)
        np.testing.assert_array_equal(out.numpy(), np.full(6, -7 + 5 + (1 << 40) + 0.75))
        with pytest.raises(TypeError, match="scalars takes 8"):
            function(handle, 1)

    def test_two_threads_may_launch_one_function(self, tvm: Any, dev: Any) -> None:
        n = 1000
        library = two_kernels(n, 8)
        function = library["main"]
        failures: list[str] = []

        def launch(seed: int) -> None:
            a = np.random.default_rng(seed).random(n, dtype=np.float32)
            source, out = tvm.runtime.tensor(a, dev), tvm.runtime.empty((n,), "float32", dev)
            for _ in range(50):
                function(source, out)
                if not np.allclose(out.numpy(), two_kernels_expected(a), rtol=1e-6):
                    failures.append(f"thread {seed}")

        threads = [threading.Thread(target=launch, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Each thread's kernels share the queue but neither arguments nor workspaces.
        assert failures == []


class TestErrors:
    def test_a_work_group_that_is_too_large(self, tvm: Any, dev: Any) -> None:
        too_many = dev.max_threads_per_block * 2
        library = two_kernels(too_many, too_many)
        a = tvm.runtime.empty((too_many,), "float32", dev)
        with pytest.raises(RuntimeError) as caught:
            library["main"](a, a)
        text = str(caught.value)
        assert "CL_INVALID_WORK_GROUP_SIZE" in text or "CL_INVALID_WORK_ITEM_SIZE" in text
        assert "kernel main_kernel" in text
        assert f"local size {too_many}" in text
        # The device is as good as before.
        test = TestKernels()
        test.test_two_kernels_with_a_workspace(tvm, dev, 37)

    def test_a_kernel_that_does_not_compile_shows_the_build_log(self, tvm: Any) -> None:
        source = "__kernel void wrong(__global float* a) { a[0] = no_such_name; }"
        function = module_of(source, "wrong", ["handle"], ["threadIdx.x"]).get_function("wrong")
        with pytest.raises(RuntimeError) as caught:
            function(None, 1)
        text = str(caught.value)
        assert "CL_BUILD_PROGRAM_FAILURE" in text
        assert "kernel wrong" in text
        assert "no_such_name" in text  # The compiler's own words.

    def test_a_source_without_the_kernel(self, tvm: Any) -> None:
        import tvm_ffi

        create = tvm_ffi.get_global_func("ffi.Module.create.opencl")
        module = create(b"// nothing here", "cl", metadata_of("lost", ["handle"], []), {})
        with pytest.raises(RuntimeError, match="no kernel 'lost'"):
            module.get_function("lost")

    def test_damaged_bytes(self, tvm: Any) -> None:
        import tvm_ffi

        load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.opencl")
        with pytest.raises(ValueError, match="end too early"):
            load(b"\x02\0\0\0\0\0\0\0cl\xff\xff\0\0")

    def test_a_buffer_that_does_not_fit_names_the_limit(self, tvm: Any, dev: Any) -> None:
        with pytest.raises(RuntimeError, match=r"CL_\w+ .* allocation of \d+ bytes"):
            tvm.runtime.empty((1 << 44,), "float32", dev)


class TestCopies:
    @pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
    @pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (4097,), (0,), ()])
    def test_round_trip(self, tvm: Any, dev: Any, dtype: str, shape: tuple[int, ...]) -> None:
        a = (np.random.default_rng(1).random(shape) * 100).astype(dtype)
        there = tvm.runtime.empty(shape, dtype, dev)
        there.copyfrom(a)
        beside = tvm.runtime.empty(shape, dtype, dev)
        there.copyto(beside)
        np.testing.assert_array_equal(beside.numpy(), a)

    def test_views_at_an_offset(self, tvm: Any, dev: Any) -> None:
        a = np.arange(101, dtype="float32")
        whole = tvm.runtime.tensor(a, dev)
        view = whole._create_view((13,), "float32", relative_byte_offset=4 * 7)
        np.testing.assert_array_equal(view.numpy(), a[7:20])
        view.copyfrom(np.full(13, -1, "float32"))
        other = whole._create_view((5,), "float32", relative_byte_offset=4 * 90)
        whole._create_view((5,), "float32", relative_byte_offset=4 * 17).copyto(other)
        a[7:20] = -1
        a[90:95] = a[17:22]
        np.testing.assert_array_equal(whole.numpy(), a)

    @pytest.mark.parametrize(
        ("scope", "shape"),
        [
            ("global.texture", (2, 3, 5, 7, 4)),
            ("global.texture-weight", (5, 3, 2, 4)),
            ("global.texture-nhwc", (2, 3, 5, 7, 4)),
        ],
    )
    def test_images(self, tvm: Any, dev: Any, scope: str, shape: tuple[int, ...]) -> None:
        if not opencl_sidecar.devices()[0].image_support:
            pytest.skip("the device has no images")
        a = np.random.default_rng(2).random(shape, dtype=np.float32)
        image = tvm.runtime.empty(shape, "float32", dev, mem_scope=scope)
        image.copyfrom(a)
        np.testing.assert_array_equal(image.numpy(), a)
        flat = tvm.runtime.empty(shape, "float32", dev)
        image.copyto(flat)
        np.testing.assert_array_equal(flat.numpy(), a)
        again = tvm.runtime.empty(shape, "float32", dev, mem_scope=scope)
        flat.copyto(again)
        third = tvm.runtime.empty(shape, "float32", dev, mem_scope=scope)
        again.copyto(third)
        np.testing.assert_array_equal(third.numpy(), a)


class TestLibraries:
    def test_a_fresh_runtime_only_process_runs_an_exported_library(
        self, tvm: Any, dev: Any, tmp_path: Path
    ) -> None:
        path = tmp_path / "two.so"
        two_kernels(37, 16).export_library(str(path))
        result = child_json(
            f"""
            import json
            import numpy as np
            import tvm
            from autotune.compiler.native import opencl_sidecar
            assert opencl_sidecar.load()
            module = tvm.runtime.load_module({str(path)!r})
            dev = tvm.device("opencl", 0)
            a = np.arange(37, dtype="float32")
            out = tvm.runtime.empty((37,), "float32", dev)
            module["main"](tvm.runtime.tensor(a, dev), out)
            assert "main_kernel" in module.imports[0].inspect_source()
            print(json.dumps(out.numpy().tolist()))
            """,
            TVM_USE_RUNTIME_LIB="1",
        )
        np.testing.assert_allclose(
            result, two_kernels_expected(np.arange(37, dtype="float32")), rtol=1e-6
        )

    def test_bytes_are_those_of_tvm_without_the_sidecar(
        self, tvm: Any, dev: Any, tmp_path: Path
    ) -> None:
        ours, theirs = tmp_path / "ours.so", tmp_path / "theirs.so"
        two_kernels(37, 16).export_library(str(ours))
        done = child(
            f"HOST = {HOST!r}\n{TWO_KERNELS}\n"
            "import tvm_ffi\n"
            "assert tvm_ffi.get_global_func('device_api.opencl', allow_missing=True) is None\n"
            f"two_kernels(37, 16).export_library({str(theirs)!r})\n",
            XDG_CACHE_HOME=str(tmp_path / "empty"),  # So that nothing is loaded with TVM.
        )
        assert done.returncode == 0, done.stderr
        assert library_blob(ours) == library_blob(theirs)
        out = tvm.runtime.empty((37,), "float32", dev)
        a = np.arange(37, dtype="float32")
        tvm.runtime.load_module(str(theirs))["main"](tvm.runtime.tensor(a, dev), out)
        np.testing.assert_allclose(out.numpy(), two_kernels_expected(a), rtol=1e-6)

    def test_compiling_opens_no_device(self, tvm: Any, tmp_path: Path) -> None:
        # A builder on a machine without OpenCL must still export kernels for a phone.
        path = tmp_path / "two.so"
        done = child(
            f"HOST = {HOST!r}\n{TWO_KERNELS}\n"
            "from autotune.compiler.native import opencl_sidecar\n"
            "assert opencl_sidecar.load()\n"
            f"two_kernels(37, 16).export_library({str(path)!r})\n",
            AUTOTUNE_OPENCL_LIBRARY="/nonexistent/libOpenCL.so",
        )
        assert done.returncode == 0, done.stderr
        assert path.exists()


def added(constant: float, only_compile: bool) -> float:
    """Adds a constant to zero, or only compiles the kernel that does; the result."""
    import tvm
    from tvm import te

    a = te.placeholder((1,), name="A")
    b = te.compute((1,), lambda i: a[i] + constant, name="B")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b]))
    (loop,) = schedule.get_loops(schedule.get_sblock("B"))
    schedule.bind(loop, "threadIdx.x")
    built = tvm.compile(schedule.mod, target=tvm.target.Target("opencl", host="llvm"))
    device = tvm.device("opencl", 0)
    given, found = (tvm.runtime.tensor(np.zeros(1, "float32"), device) for _ in range(2))
    if only_compile:
        opencl_sidecar.compile_programs(built.mod.imports[0].inspect_source())
    else:
        built["main"](given, found)
    return float(found.numpy()[0])


class TestKeptPrograms:
    """Programs in the folder that AUTOTUNE_OPENCL_PROGRAMS names."""

    def _added(self, constant: float, folder: Path, *, only_compile: bool = False) -> float:
        ways = {"AUTOTUNE_OPENCL_PROGRAMS": str(folder)}
        return float(forked(added, constant, only_compile, environment=ways))

    def test_without_the_variable_they_are_in_the_users_folder_and_none_where_it_is_empty(
        self, tvm: Any, tmp_path: Path
    ) -> None:
        cache, home, none = (tmp_path / name for name in ("cache", "home", "none"))
        for variables, folder in (
            ({"XDG_CACHE_HOME": str(cache)}, cache),
            ({"XDG_CACHE_HOME": "relative", "HOME": str(home)}, home / ".cache"),
            ({"XDG_CACHE_HOME": str(none), "AUTOTUNE_OPENCL_PROGRAMS": ""}, none),
        ):
            # Once TVM has found the runtime, which is in the user's folder too.
            pocl = {"AUTOTUNE_OPENCL_PROGRAMS": None, "POCL_CACHE_DIR": str(tmp_path / "pocl")}
            assert forked(added, 1.0, False, environment={**pocl, **variables}) == 1.0
            kept = list(folder.glob("autotune/opencl-programs/*"))
            assert len(kept) == (folder != none)

    def _kept(self, folder: Path) -> Path:
        (kept,) = folder.iterdir()
        return kept

    def test_a_launch_takes_what_was_compiled_before(self, tvm: Any, tmp_path: Path) -> None:
        """The kept program of one source is put in the place of another's: then that is what runs."""
        one, other = tmp_path / "one", tmp_path / "made" / "other"
        assert self._added(1.0, one) == 1.0
        assert self._added(2.0, other, only_compile=True) == 0.0
        first, second = self._kept(one).read_bytes(), self._kept(other)
        program = self._parts(first)[1]
        key = self._parts(second.read_bytes())[0]
        second.write_bytes(self._head(key + program, len(key)) + key + program)
        assert self._added(2.0, other) == 1.0

    def test_a_damaged_program_is_compiled_anew(self, tvm: Any, tmp_path: Path) -> None:
        assert self._added(1.0, tmp_path) == 1.0
        kept = self._kept(tmp_path)
        whole = kept.read_bytes()
        kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert self._added(1.0, tmp_path) == 1.0
        assert self._parts(kept.read_bytes())[0] == self._parts(whole)[0]

    def test_a_program_that_the_driver_refuses_is_compiled_anew(
        self, tvm: Any, tmp_path: Path
    ) -> None:
        assert self._added(1.0, tmp_path) == 1.0
        kept = self._kept(tmp_path)
        key, _ = self._parts(kept.read_bytes())
        kept.write_bytes(self._head(key + b"none", len(key)) + key + b"none")
        assert self._added(1.0, tmp_path) == 1.0

    @staticmethod
    def _parts(content: bytes) -> tuple[bytes, bytes]:
        """Key and program of a file."""
        head, rest = content.split(b"\n", 1)
        size = int(head.split()[1])
        return rest[:size], rest[size:]

    @staticmethod
    def _head(rest: bytes, key_size: int) -> bytes:
        total = 14695981039346656037
        for byte in rest:
            total = (total ^ byte) * 1099511628211 % 2**64
        return f"autotune-opencl-1 {key_size} {len(rest) - key_size} {total:016x}\n".encode()


class TestTimes:
    @pytest.fixture(params=[False, True], ids=["host clock", "device clock"])
    def profiling(self, tvm: Any, request: pytest.FixtureRequest) -> Iterator[bool]:
        opencl_sidecar.set_profiling(request.param)
        yield request.param
        opencl_sidecar.set_profiling(False)

    def test_times_are_plausible(self, tvm: Any, dev: Any, profiling: bool) -> None:
        means = {}
        for n in (1 << 10, 1 << 22):
            library = two_kernels(n, 64)
            a = tvm.runtime.tensor(np.ones(n, "float32"), dev)
            out = tvm.runtime.empty((n,), "float32", dev)
            library["main"](a, out)
            dev.sync()
            evaluator = library.mod.time_evaluator("main", dev, number=20, repeat=3)
            start = time.perf_counter()
            results = evaluator(a, out).results
            elapsed = time.perf_counter() - start
            assert len(results) == 3
            assert 0 < 20 * sum(results) < elapsed
            means[n] = min(results)
            np.testing.assert_array_equal(out.numpy(), np.full(n, 4, "float32"))
        # 16 MiB in and out, twice, takes longer than 4 KiB, and no machine here moves 10 TB/s.
        assert means[1 << 22] > 3 * means[1 << 10]
        assert means[1 << 22] > 64e6 / 1e13


class TestAbsence:
    def test_a_machine_without_opencl(self, tvm: Any) -> None:
        found = child_json(
            """
            import json
            import tvm
            from autotune.compiler.native import opencl_sidecar
            from autotune.errors import ToolchainError
            opencl_sidecar.ensure()
            found = {"exist": bool(tvm.device("opencl", 0).exist)}
            try:
                opencl_sidecar.devices()
            except ToolchainError as error:
                found["message"], found["hint"] = error.message, error.hint
            try:
                tvm.runtime.empty((4,), "float32", tvm.device("opencl", 0))
            except RuntimeError as error:
                found["use"] = str(error)
            print(json.dumps(found))
            """,
            AUTOTUNE_OPENCL_LIBRARY="/nonexistent/libOpenCL.so",
        )
        assert found["exist"] is False
        assert "/nonexistent/libOpenCL.so" in found["message"]
        assert "libOpenCL.so.1" not in found["message"]  # The variable is the whole list.
        for text in (found["hint"], found["message"], found["use"]):
            assert "ocl-icd-libopencl1" in text
            assert "pocl-opencl-icd" in text

    def test_autoload_does_nothing_without_a_built_library(self, tmp_path: Path) -> None:
        found = child_json(
            """
            import json, time
            import tvm, tvm_ffi
            from autotune.compiler.native import opencl_sidecar
            times = []
            for _ in range(5):
                start = time.perf_counter()
                opencl_sidecar.autoload()
                times.append(time.perf_counter() - start)
            name = "autotune.opencl.devices"
            loaded = tvm_ffi.get_global_func(name, allow_missing=True) is not None
            print(json.dumps([loaded, min(times), opencl_sidecar.library_path().exists()]))
            """,
            XDG_CACHE_HOME=str(tmp_path),
        )
        assert found[0] is False
        assert found[1] < 0.02
        assert found[2] is False

    def test_autoload_loads_a_built_library(self, tvm: Any) -> None:
        found = child_json(
            """
            import json, time
            import tvm, tvm_ffi
            from autotune.compiler.native import opencl_sidecar
            opencl_sidecar.autoload()
            print(json.dumps(bool(tvm.device("opencl", 0).exist)))
            """
        )
        assert found is True

    def test_a_tvm_with_its_own_opencl_is_left_alone(self, tvm: Any, tmp_path: Path) -> None:
        found = child_json(
            f"""
            import json, os
            import tvm, tvm_ffi
            tvm_ffi.register_global_func("ffi.Module.create.opencl", lambda *args: "their own")
            os.environ["XDG_CACHE_HOME"] = {os.environ.get("XDG_CACHE_HOME", "")!r}
            from autotune.compiler.native import opencl_sidecar
            def there(name):
                return tvm_ffi.get_global_func(name, allow_missing=True) is not None
            opencl_sidecar.autoload()
            found = [there("autotune.opencl.devices")]
            found.append(opencl_sidecar.load())
            found.append(there("autotune.opencl.devices"))
            found.append(there("device_api.opencl"))
            found.append(tvm_ffi.get_global_func("ffi.Module.create.opencl")())
            print(json.dumps(found))
            """,
            XDG_CACHE_HOME=str(tmp_path),  # So that nothing is loaded with TVM.
        )
        assert found == [False, True, True, False, "their own"]

    def test_load_needs_tvm(self) -> None:
        code = (
            "from autotune.compiler.native import opencl_sidecar as s; import sys; print(s.load())"
        )
        done = child(code + "; assert 'tvm' not in sys.modules")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "False"


class TestBuild:
    def test_the_path_follows_tvm_and_the_sources(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        here = opencl_sidecar.library_path()
        assert here.parent.parent == tmp_path / "autotune" / "sidecar"
        assert here.name == "libautotune_opencl.so"
        assert metadata.version("apache-tvm") in here.parent.name

        real = metadata.version
        for package in ("apache-tvm", "apache-tvm-ffi"):
            with monkeypatch.context() as patch:
                patch.setattr(
                    metadata, "version", lambda name, p=package: "9.9" if name == p else real(name)
                )
                assert opencl_sidecar.library_path() != here
        with monkeypatch.context() as patch:
            sources = tmp_path / "rpc"
            for folder in ("opencl", "opencl_loader", "common"):
                (sources / folder).mkdir(parents=True)
            (sources / "CMakeLists.txt").write_text("# other\n")
            patch.setattr(native_build, "rpc_sources", lambda: sources)
            other = opencl_sidecar.library_path()
            assert other != here
            (sources / "opencl" / "more.cc").write_text("int x;\n")
            assert opencl_sidecar.library_path() != other
        assert opencl_sidecar.library_path() == here

    @pytest.mark.parametrize(("tool", "package"), [("cmake", "cmake"), ("g++", "g++")])
    def test_a_missing_tool_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, package: str
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CXX", raising=False)
        if tool != "cmake":
            (tmp_path / "cmake").write_text("#!/bin/sh\n")
            (tmp_path / "cmake").chmod(0o755)
        with pytest.raises(ToolchainError) as caught:
            opencl_sidecar.ensure()
        assert tool in caught.value.message
        assert caught.value.hint == f"sudo apt install {package}"

    def test_missing_headers_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        part = opencl_sidecar._PART
        # What find_path would have found, had it found nothing.
        absent = (*part.definitions, ("OPENCL_HEADERS", "OPENCL_HEADERS-NOTFOUND"))
        absent += (("CMAKE_FIND_ROOT_PATH", str(tmp_path)),)
        absent += (("CMAKE_FIND_ROOT_PATH_MODE_INCLUDE", "ONLY"),)
        monkeypatch.setattr(
            opencl_sidecar, "_PART", type(part)(**{**vars(part), "definitions": absent})
        )
        with pytest.raises(ToolchainError) as caught:
            opencl_sidecar.ensure()
        assert "CL/cl.h" in caught.value.message
        assert caught.value.hint == "sudo apt install opencl-headers"
        assert not list(tmp_path.rglob(".build-*"))

    def test_a_source_that_does_not_compile_shows_the_compiler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        sources = tmp_path / "rpc"
        for folder in ("opencl", "opencl_loader", "common"):
            (sources / folder).mkdir(parents=True)
        (sources / "opencl" / "bad.cc").write_text("int main() { return no_such_name; }\n")
        (sources / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(bad LANGUAGES CXX)\n"
            "add_executable(autotune_opencl opencl/bad.cc)\n"
        )
        monkeypatch.setattr(native_build, "rpc_sources", lambda: sources)
        with pytest.raises(ToolchainError, match="no_such_name"):
            opencl_sidecar.ensure()
