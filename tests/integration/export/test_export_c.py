"""`autotune export --format c`: libraries that other programs call without TVM."""

import json
import os
import platform
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from boards import SSHD, ssh_board
from command import AUTOTUNE, autotune
from exports import DATA, compiled, exported, said, untuned_variant, with_cluster

from autotune.compiler.export.exporter import Format
from autotune.compiler.export.objects import compile_objects
from autotune.compiler.export.variants import Variant, with_safe_variant
from autotune.compiler.export.verification import verify
from autotune.compiler.programs.scheduled import untuned_program
from autotune.compiler.runners.local_devices import host_device
from autotune.compiler.target.targets import TargetSpec
from autotune.errors import ToolchainError, UsageError
from autotune.workloads import StepForm, TrainingStep, tasks
from autotune.workloads.operators import Kernel
from autotune.workloads.spec import parse_kernel

M, N, K = 8, 24, 40
MATMUL = f"matmul:m={M},n={N},k={K}"
API = {
    "context_create", "context_destroy", "status_text", "error", "context_variant", "context_threads",
    "variant_count", "variant_name", "kernel_count", "kernel_at", "run",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(matmul_run: Path) -> Path:
    """A finished run on this processor."""
    return matmul_run


@pytest.fixture(scope="module")
def library(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("c") / "out"
    done = autotune("export", run, "--format", "c", "--name", "kernels", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def kinds(model: str, batch: int) -> list[Kernel]:
    """One kernel of each operator, role and epilogue of a model's step."""
    graph = TrainingStep(model, batch).graph(StepForm("channels_last"))
    found: dict[object, Kernel] = {}
    for task in tasks(graph):
        kernel = task.kernel
        key = (kernel.operator.name, kernel.role, tuple(f.operator.name for f in kernel.epilogue))
        if key not in found or kernel.bytes < found[key].bytes:
            found[key] = kernel
    return list(found.values())


def flags(out: Path, *, static: bool) -> list[str]:
    """What a compiler needs for a program that calls the library."""
    include = f"-I{out / 'include'}"
    if static:
        return [include, str(out / "lib" / "libkernels.a"), "-lstdc++", "-lm"]
    return [include, f"-L{out / 'lib'}", "-lkernels", f"-Wl,-rpath,{out / 'lib'}"]


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
@pytest.mark.parametrize("static", [False, True])
def test_pkg_config_knows_what_a_program_needs(library: Path, tmp_path: Path, static: bool) -> None:
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "kernels"],
        env={**os.environ, "PKG_CONFIG_PATH": str(library / "lib" / "pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.split()
    if static:
        words = ["-l:libkernels.a" if word == "-lkernels" else word for word in words]
    program = compiled(
        DATA / "dispatch.c", tmp_path / "dispatch", *words, f"-Wl,-rpath,{library / 'lib'}"
    )
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert ("libkernels.so" in linked) != static
    assert said(program, "another").strip() == "default"


def test_verify_finds_every_kernel_of_every_variant_right(library: Path) -> None:
    done = autotune("verify", library, "--json")
    assert done.stderr.splitlines()[-1] == f"next: less {library / 'README.md'}"
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["ok"], content["device"]) == (1, True, "host")
    seen = {(one["variant"], one["role"]) for one in content["results"]}
    roles = ("forward", "data_grad", "weight_grad")
    assert seen == {(variant, role) for variant in ("default", "cpu") for role in roles}
    assert all(one["status"] == "ok" and one["max_rel_error"] < 1e-4 for one in content["results"])


@pytest.mark.parametrize("static", [False, True])
def test_programs_call_it_in_every_right_and_wrong_way(
    library: Path, tmp_path: Path, static: bool
) -> None:
    check_calls(library, tmp_path, static=static)


def check_calls(library: Path, folder: Path, *, static: bool, sizes: str = MATMUL) -> None:
    """Compiles and runs the program that calls a matmul in every way."""
    kernel = parse_kernel(sizes, "forward")
    words = [word.upper() for word in sizes.partition(":")[2].split(",")]
    program = compiled(
        DATA / "calls.c", folder / "calls", f"-DKERNEL=kernels_{kernel.name}", *(f"-D{w}" for w in words),
        *flags(library, static=static), "-lpthread", "-lm",
    )  # fmt: skip
    assert said(program) == ""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "tvm" not in linked
    assert static or "libkernels.so" in linked


def test_parallel_loops_and_temporaries_are_right_with_any_number_of_threads(
    tmp_path: Path,
) -> None:
    sizes = "matmul:m=16,n=600,k=40"
    kernel = parse_kernel(sizes, "forward")

    def program(target: object) -> object:
        from tvm.s_tir import Schedule

        schedule = Schedule(untuned_program(kernel, target))
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        kept = schedule.cache_write(block, 0, "global")
        rows = schedule.get_loops(block)[0]
        schedule.reverse_compute_at(kept, rows)
        schedule.parallel(rows)
        return schedule.mod

    plain = untuned_variant("cpu", [kernel])
    one = replace(plain.kernels[0], program=program)
    variant = replace(plain, kernels=(one,), soc=host_device().name)
    exported([variant], tmp_path / "out", "c")
    compile_objects(variant, "x__", tmp_path, lambda *_: None)
    (built,) = tmp_path.glob("*.o")
    text = subprocess.run(["nm", built], capture_output=True, text=True, check=True).stdout
    assert "TVMBackendParallelLaunch" in text
    assert "TVMBackendAllocWorkspace" in text
    check_calls(tmp_path / "out", tmp_path, static=True, sizes=sizes)


def test_only_the_interface_is_shown(library: Path) -> None:
    wanted = {f"kernels_{name}" for name in API}
    wanted |= {
        f"kernels_matmul_{role}_m{M}n{N}k{K}" for role in ("forward", "data_grad", "weight_grad")
    }
    for arguments in (("-D", "lib/libkernels.so"), ("-g", "lib/libkernels.a")):
        *options, file = arguments
        listed = subprocess.run(
            ["nm", "--defined-only", *options, library / file],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert {
            line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3
        } == wanted


def test_the_header_is_c_and_cpp_and_may_be_included_twice(library: Path, tmp_path: Path) -> None:
    text = '#include "kernels.h"\n#include "kernels.h"\nint main(void) { return kernels_kernel_count() == 0; }\n'
    for name, compiler in (("both.c", "gcc"), ("both.cc", "g++")):
        (tmp_path / name).write_text(text)
        program = compiled(
            tmp_path / name,
            tmp_path / f"{name}.out",
            *flags(library, static=False),
            compiler=compiler,
        )
        assert said(program) == ""


def test_two_static_exports_go_into_one_program(library: Path, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    done = autotune("export", run, "--format", "c", "--name", "others", "--out", other)
    assert done.returncode == 0, done.stderr
    (tmp_path / "two.c").write_text(
        '#include "kernels.h"\n#include "others.h"\n'
        "int main(void) { return kernels_kernel_count() != others_kernel_count(); }\n"
    )
    program = compiled(
        tmp_path / "two.c", tmp_path / "two", f"-I{library}/include", f"-I{other}/include",
        str(library / "lib" / "libkernels.a"), str(other / "lib" / "libothers.a"), "-lstdc++", "-lm",
    )  # fmt: skip
    assert said(program) == ""


def test_the_same_run_gives_the_same_files(library: Path, run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert (
        autotune("export", run, "--format", "c", "--name", "kernels", "--out", again).returncode
        == 0
    )
    assert (again / "manifest.json").read_bytes() == (library / "manifest.json").read_bytes()


def test_variants_are_chosen_by_soc_and_cluster(run: Path, tmp_path: Path) -> None:
    big = with_cluster(run, tmp_path / "big-run", "big")
    little = with_cluster(run, tmp_path / "little-run", "little")
    out = tmp_path / "out"
    done = autotune(
        "export", big, little, run, "--soc", "SM8150", "--soc", "SM8150", "--soc", "Exynos 990",
        "--format", "c", "--name", "kernels", "--out", out, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert [one["name"] for one in manifest["variants"]] == [
        "default",
        "cpu_big",
        "cpu_little",
        "cpu",
    ]
    assert manifest["safe_variant"]["name"] == "default"
    assert manifest["variants"][1]["match"] == {
        "soc": "SM8150", "gpu": None, "driver": None, "cluster": "big",
    }  # fmt: skip
    program = compiled(DATA / "dispatch.c", tmp_path / "dispatch", *flags(out, static=False))
    for soc, cluster, expected in (
        ("sm8150 ", "little", "cpu_little"),
        ("SM8150", "big", "cpu_big"),
        ("SM8150", "-", "cpu_big"),
        ("SM8150", "middle", "default"),
        ("exynos 990", "big", "cpu"),
        ("another", "big", "default"),
        ("-", "-", "default"),
    ):
        assert said(program, soc, cluster).strip() == expected, (soc, cluster)


def test_a_variant_whose_instructions_are_missing_is_never_taken(tmp_path: Path) -> None:
    kernel = parse_kernel(MATMUL, "forward")
    sve = TargetSpec(
        "sve", "cpu", "arm_cpu.toml", "", "aarch64-linux-gnu",
        (("kind", "llvm"), ("mtriple", "aarch64-linux-gnu"), ("mattr", ("+bf16", "+i8mm"))),
    )  # fmt: skip
    variant = untuned_variant("arm-cpu", [kernel], "new")
    variant = Variant(variant.name, sve, variant.space, variant.kernels, soc="chip")
    exported([variant], tmp_path / "out", "c")
    flag = ["-static", f"-I{tmp_path}/out/include", str(tmp_path / "out/lib/libkernels.a")]
    program = compiled(
        DATA / "dispatch.c", tmp_path / "dispatch", *flag, "-lstdc++", "-lm",
        compiler="aarch64-linux-gnu-gcc",
    )  # fmt: skip
    for cpu, expected in (("cortex-a57", "default"), ("max", "new")):
        done = subprocess.run(
            ["qemu-aarch64-static", "-cpu", cpu, program, "chip"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected, cpu


@pytest.mark.parametrize(
    "model", [pytest.param("lenet", marks=pytest.mark.exhaustive), "mobilenet_v2"]
)
def test_kernels_of_every_kind_are_right(tmp_path: Path, model: str) -> None:
    kernels = kinds(model, 2)
    exported([untuned_variant("cpu", kernels)], tmp_path / "out", "c", check_all=True)
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]
    assert len(verdict.results) == 2 * len(kernels)


def test_a_library_for_aarch64_is_right_under_qemu(tmp_path: Path) -> None:
    kernels = kinds("lenet", 1)
    manifest = exported(
        [untuned_variant("arm-cpu", kernels)], tmp_path / "out", "c", check_all=True
    )
    assert manifest["platform"] == "linux-aarch64"
    verdict = verify(tmp_path / "out", "qemu")
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]
    assert verdict.device == "qemu"
    with pytest.raises(UsageError, match="cannot run on host"):
        verify(tmp_path / "out", "host")


def test_android_asks_for_the_ndk_and_its_objects_are_those_of_android(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    variant = untuned_variant("arm-cpu", [parse_kernel(MATMUL, "forward")])
    with pytest.raises(ToolchainError, match="Android NDK"):
        exported([variant], tmp_path / "out", "c", platform="android-arm64")
    assert not (tmp_path / "out" / "manifest.json").exists()
    android = TargetSpec(
        "a",
        "cpu",
        "",
        "",
        "aarch64-linux-android",
        (("kind", "llvm"), ("mtriple", "aarch64-linux-android")),
    )
    (safe, _) = with_safe_variant([variant], android)
    compile_objects(safe, "v0__", tmp_path, lambda *_: None)
    (built,) = tmp_path.glob("*.o")
    elf = built.read_bytes()
    assert int.from_bytes(elf[18:20], "little") == 183  # EM_AARCH64
    listed = subprocess.run(
        ["aarch64-linux-gnu-nm", built], capture_output=True, text=True, check=True
    ).stdout
    assert f"__tvm_ffi_v0__matmul_forward_m{M}n{N}k{K}" in listed


def test_what_does_not_fit_is_refused(run: Path, tmp_path: Path) -> None:
    matmul = parse_kernel(MATMUL, "forward")
    cpu, arm, gpu = (untuned_variant(name, [matmul], name) for name in ("cpu", "arm-cpu", "opencl"))
    for variants, kind, options, message in (
        ([gpu], "c", {}, "holds kernels of a processor"),
        ([cpu, arm], "c", {}, "different kinds of processors"),
        ([cpu], "c", {"platform": "android-arm64"}, "not for android-arm64"),
        ([cpu], "opencl", {}, "not an OpenCL target"),
        ([cpu], "tvm", {"platform": "host"}, "--for goes with --format c"),
        ([], "c", {}, "nothing to export"),
    ):
        if platform.machine() != "x86_64" and arm in variants:
            continue
        with pytest.raises(UsageError, match=message):
            exported(variants, tmp_path / "out", kind, **options)  # type: ignore[arg-type]
    for arguments, message in (
        (("--format", "elf"), "unknown format"),
        (("--format", "c", "--name", "a b"), "not a name"),
        (("--format", "c", "--name", "int"), "not a name"),
        (("--soc", "a", "--soc", "b"), "2 chips are named for 1 runs"),
    ):
        done = autotune("export", run, "--out", tmp_path / "out", *arguments)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_an_export_replaces_an_earlier_one_and_goes_into_no_other_folder(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for kind in ("c", "tvm"):
        assert autotune("export", run, "--format", kind, "--out", out).returncode == 0
        manifest = json.loads((out / "manifest.json").read_text())
        files = {p.relative_to(out).as_posix() for p in out.rglob("*") if not p.is_dir()}
        assert files == {*manifest["files"], "manifest.json"}
        assert not [p for p in out.rglob("*") if p.is_dir() and not any(p.iterdir())]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "mine.txt").write_text("kept")
    refused = autotune("export", run, "--format", "c", "--out", out)
    assert (refused.returncode, "mine.txt" in refused.stderr) == (2, True), refused.stderr
    assert all(path.read_bytes() == content for path, content in before.items())
    assert (out / "mine.txt").read_text() == "kept"


def test_what_a_killed_export_leaves_is_removed_by_the_next(run: Path, tmp_path: Path) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    command = [*AUTOTUNE, "export", str(run), "--format", "c", "--out", str(out)]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    while not list(temporary.glob("autotune-export-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert list(out.glob(".export-*"))
    done = autotune(*command[len(AUTOTUNE) :], TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert not list(temporary.iterdir())
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_an_export_that_is_ended_says_so_and_leaves_no_folder(
    run: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "new" / "out"
    command = [*AUTOTUNE, "export", str(run), "--format", "c", "--out", str(out)]
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    process = subprocess.Popen(
        command, env=state, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob(".export-*/*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate()[1]
    if number != signal.SIGKILL:
        *waits, last = said.splitlines()
        assert (process.returncode, last) == (130, "autotune: interrupted")
        assert all(line.startswith("autotune: waiting: ") for line in waits), said
    else:
        assert out.exists()
        done = autotune(
            "export", run, "--format", "tvm", "--out", tmp_path / "other",
            XDG_STATE_HOME=str(tmp_path / "state"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "new").exists()


def test_verify_tells_what_has_changed_and_runs_nothing_of_it(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert autotune("export", run, "--format", "c", "--out", out).returncode == 0
    header = next((out / "include").iterdir())
    header.write_text(header.read_text() + "\n")
    (out / "LICENSE").unlink()
    (out / "notes.txt").write_text("mine")
    done = autotune("verify", out, "--json")
    content = json.loads(done.stdout)
    assert (done.returncode, content["ok"], content["results"]) == (1, False, [])
    assert {(one["file"], one["status"]) for one in content["files"]} == {
        ("LICENSE", "missing"),
        ("include/autotune_kernels.h", "changed"),
        ("notes.txt", "unlisted"),
    }


def test_verify_sees_a_wrong_result(run: Path, tmp_path: Path) -> None:
    from autotune.compiler.export.manifest import digests

    out = tmp_path / "out"
    assert autotune("export", run, "--format", "c", "--out", out).returncode == 0
    manifest = json.loads((out / "manifest.json").read_text())
    expected = out / manifest["checks"][0]["expected"][0]
    expected.write_bytes(bytes(expected.stat().st_size))
    manifest["files"] = digests(out)
    (out / "manifest.json").write_text(json.dumps(manifest))
    found = json.loads(autotune("verify", out, "--json").stdout)
    assert (found["run_folder"], found["model"], found["batch"]) == (None, None, None)
    assert found["command"] == f"autotune verify {out} --json"
    done = autotune("verify", out)
    assert done.returncode == 1
    assert "wrong" in done.stdout
    assert "WRONG" in done.stdout
    assert "matmul_forward" not in done.stdout  # Names as in other tables.
    assert done.stderr.splitlines()[-1] == "next: autotune runs"


@pytest.mark.parametrize("kind", ["c", pytest.param("tvm", marks=pytest.mark.exhaustive)])
def test_kernels_whose_results_are_not_stored_are_checked_too(tmp_path: Path, kind: Format) -> None:
    kernels = [parse_kernel(f"matmul:m=8,n={n},k=40", "forward") for n in (8, 16, 24, 32)]
    out = tmp_path / "out"
    made = exported([untuned_variant("cpu", kernels)], out, kind)
    assert len(made["checks"]) == 1
    done = autotune("verify", out, "--json")
    content = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (content["checked_kernels"], content["kernels"]) == (4, 4)
    assert {one["kernel"] for one in content["results"]} == {one.name for one in kernels}
    fewer = autotune("verify", out, "--sample", "2")
    assert "right, " in fewer.stdout
    assert "2 of 4 kernels checked" in fewer.stdout
    refused = autotune("verify", out, "--sample", "2", "--check-all")
    assert refused.returncode == 2


def test_a_wrong_kernel_whose_result_is_not_stored_is_seen(tmp_path: Path) -> None:
    stored = parse_kernel("matmul:m=8,n=8,k=8", "forward")
    with_relu = parse_kernel("bias:n=8,c=8,s=16,relu=1", "forward")
    without = parse_kernel("bias:n=8,c=8,s=16,relu=0", "forward")
    variant = untuned_variant("cpu", [stored, with_relu])
    right, other = variant.kernels
    wrong = replace(other, program=lambda target: untuned_program(without, target))
    out = tmp_path / "out"
    made = exported([replace(variant, kernels=(right, wrong))], out, "tvm")
    assert [one["kernel"] for one in made["checks"]] == [stored.name]
    done = autotune("verify", out, "--json")
    content = json.loads(done.stdout)
    assert (done.returncode, content["ok"]) == (1, False)
    assert {one["kernel"]: one["status"] for one in content["results"]} == {
        stored.name: "ok",
        with_relu.name: "wrong",
    }


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("main.c", "int main(void) { return nothing; }\n", "main.c:1:25: error: "),
        ("main.c", '#include "/dev/zero"\nint main(void) { return 0; }\n', "out of memory"),
        (
            "main.c",
            "int absent(void);\nint main(void) { return absent(); }\n",
            "undefined reference",
        ),
        ("CMakeLists.txt", "no_such_command()\n", "CMake Error at CMakeLists.txt"),
    ],
)
def test_an_example_that_does_not_compile_is_one_line_within_limits(
    library: Path, tmp_path: Path, file: str, text: str, words: str
) -> None:
    from autotune.compiler.export.manifest import digests

    out = tmp_path / "out"
    shutil.copytree(library, out)
    (out / "example" / file).write_text(text)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"] = digests(out)
    (out / "manifest.json").write_text(json.dumps(manifest))
    began = time.monotonic()
    done = autotune("verify", out)
    assert done.returncode == 1, done.stderr
    (reported,) = (line for line in done.stderr.splitlines() if "error: " in line.lower())
    assert reported.startswith("autotune: error: the example does not compile: ")
    assert words in reported
    assert time.monotonic() - began < 60
    assert "gmake" not in done.stderr
    assert len(autotune("verify", out, "-v").stderr) > len(done.stderr)


def test_verify_of_what_is_no_export(tmp_path: Path) -> None:
    done = autotune("verify", tmp_path)
    assert (done.returncode, "no export at" in done.stderr) == (2, True)
    (tmp_path / "manifest.json").write_text('{"schema_version": 1}')
    done = autotune("verify", tmp_path)
    assert (done.returncode, "schema version 2" in done.stderr) == (1, True)
    done = autotune("verify", tmp_path, "--device", "moon")
    assert (done.returncode, "there is no device 'moon'" in done.stderr) == (2, True)


@pytest.mark.skipif(not SSHD, reason="sshd is not installed")
def test_a_board_is_verified_over_ssh(library: Path, tmp_path: Path) -> None:
    with ssh_board(tmp_path / "board") as (destination, config):
        where = ("--ssh", destination, "--device", destination)
        home = {"AUTOTUNE_SSH_CONFIG": str(config), "XDG_STATE_HOME": str(tmp_path / "state")}
        # Of twelve characters on a device; those of other processes on this host have fewer.
        folders = f"autotune-verify-{'?' * 12}"
        before = set(Path("/tmp").glob(folders))
        done = autotune("verify", library, *where, "--json", **home)
        assert done.returncode == 0, done.stderr
        content = json.loads(done.stdout)
        assert (content["device"], content["ok"], len(content["results"])) == (destination, True, 6)
        assert set(Path("/tmp").glob(folders)) <= before
        arm = tmp_path / "arm"
        exported([untuned_variant("arm-cpu", [parse_kernel(MATMUL, "forward")])], arm, "c")
        done = autotune("verify", arm, *where, **home)
        assert done.returncode == 2
        assert "the export is for linux-aarch64" in done.stderr


def test_a_variant_that_no_check_runs_is_not_right(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(library, out)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["variants"].append({**manifest["variants"][1], "name": "ghost"})
    for kernel in manifest["kernels"]:
        kernel["figures"]["ghost"] = kernel["figures"]["cpu"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    done = autotune("verify", out, "--json")
    content = json.loads(done.stdout)
    assert (done.returncode, content["ok"]) == (1, False)
    missed = [one for one in content["results"] if one["status"] != "ok"]
    assert [(one["variant"], one["kernel"], one["status"]) for one in missed] == [
        ("ghost", None, "not checked")
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize(("size", "used"), [("40k", 0), ("40k", 40960)])
def test_a_full_temporary_disk_is_named_and_no_other(
    library: Path, run: Path, tmp_path: Path, size: str, used: int
) -> None:
    small, out = tmp_path / "small", tmp_path / "out"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], check=True)
    try:
        (small / "used").write_bytes(bytes(used))
        for command in (("export", run, "--format", "c", "--out", out), ("verify", library)):
            done = autotune(*command, TMPDIR=str(small))
            reported = [line for line in done.stderr.splitlines() if "error:" in line]
            assert (done.returncode, len(reported)) == (1, 1), done.stderr
            assert f"the disk of {small} is full: " in reported[0]
    finally:
        subprocess.run(["umount", small], check=True)
    assert not out.exists()
