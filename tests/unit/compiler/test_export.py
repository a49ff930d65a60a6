"""What an export says of itself: texts, tables and the manifest."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.compiler.export import c_source
from autotune.compiler.export.c_format import c_parts
from autotune.compiler.export.checks import Check, check_of, chosen, write_checks
from autotune.compiler.export.exporter import export
from autotune.compiler.export.launches import Launch, OpenCLProgram
from autotune.compiler.export.manifest import (
    check_entry,
    digests,
    figures_entry,
    kernel_entry,
    manifest,
    safe_entry,
)
from autotune.compiler.export.variants import (
    SAFE,
    ExportedKernel,
    Figures,
    Variant,
    variants_of_runs,
    with_safe_variant,
)
from autotune.compiler.export.verification import verify
from autotune.compiler.target import spaces
from autotune.compiler.target.request import Cores, TuneRequest
from autotune.compiler.target.targets import find
from autotune.errors import AutotuneError, RecordError, UsageError
from autotune.records import Result, TaskResult
from autotune.scratch import Scratch
from autotune.workloads.graph import Task
from autotune.workloads.operators import Kernel
from autotune.workloads.spec import parse_kernel

MATMUL = "matmul:m=8,n=24,k=40"
FUSED = "matmul:m=8,n=24,k=40+sgd.update:size=960"


def variant_of(*kernels: Kernel, name: str = "cpu", **fields: Any) -> Variant:
    spec = find("cpu")
    ours = tuple(
        ExportedKernel(k, lambda _: None, True, 3, Figures(tuned_ms=0.5, schedule="abc"))
        for k in kernels
    )
    return Variant(name, spec, spaces.load(spec.space_path()), ours, **fields)


def run_of(
    folder: Path,
    device: dict[str, Any],
    *,
    target: str = "cpu",
    cores: Cores | None = None,
    stand_in: bool = False,
) -> Path:
    """A finished run that kept the default of one kernel."""
    spec = find(target)
    kernel = parse_kernel(MATMUL, "forward")
    request = TuneRequest(
        spec, spaces.load(spec.space_path()), "matmul", None, (Task(kernel, 2, ("a", "b")),), 1, 1,
        cores=cores,
    )  # fmt: skip
    task = TaskResult(
        kernel.name, "matmul", "forward", MATMUL, 2, 1.5, 1.5, 1.0, (1.0, 1.0), 1.0, 0, 0, {}, 1e-7,
        "direct", "default",
    )  # fmt: skip
    result = Result(target, {"stand_in": stand_in, **device}, stand_in, 1, 1.0, (task,))
    folder.mkdir()
    about = {"schema_version": 1, "request": request.to_json()}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "result.json").write_text(json.dumps(result.to_json()))
    return folder


def test_planning_an_export_needs_no_tvm() -> None:
    code = (
        "import sys\n"
        "from autotune.compiler.export import exporter, verification, variants, manifest\n"
        "sys.exit('tvm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_s_device_says_when_its_variant_is_taken(tmp_path: Path) -> None:
    cpu = {"name": "Fast CPU @ 3 GHz", "kind": "cpu", "driver": "", "details": {"threads": 4}}
    local = {"name": "Adreno 640", "kind": "opencl", "driver": "QUALCOMM, v1.2", "details": {}}
    remote = {
        "name": "phone", "kind": "rpc-opencl", "driver": "Mali-G77 (ARM Platform, 3.0 r1)", "details": {},
    }  # fmt: skip
    board = {"name": "boards", "kind": "rpc-cpu", "driver": "", "details": {}}
    paths = [
        run_of(tmp_path / "a", cpu),
        run_of(tmp_path / "b", local, target="adreno"),
        run_of(tmp_path / "c", remote, target="mali"),
        run_of(tmp_path / "d", board, target="arm-cpu", cores=Cores("big", (4, 5, 6))),
        run_of(tmp_path / "e", board, target="arm-cpu", cores=Cores("hybrid", (0, 1))),
        run_of(tmp_path / "f", board, target="arm-cpu", cores=Cores("big", (4, 5, 6))),
    ]
    found = variants_of_runs(paths, allow_stand_in=False, socs=["", "", "", "SM8150"])
    assert [(v.name, v.soc, v.gpu, v.driver, v.cluster, v.threads) for v in found] == [
        ("cpu", "Fast CPU @ 3 GHz", "", "", "", 4),
        ("adreno", "", "Adreno 640", "v1.2", "", 0),
        ("mali", "", "Mali-G77", "3.0 r1", "", 0),
        ("arm_cpu_big", "SM8150", "", "", "big", 3),
        ("arm_cpu_hybrid", "", "", "", "", 2),
        ("arm_cpu_big_2", "", "", "", "big", 3),
    ]
    assert found[0].kernels[0].figures.default_ms == 1.5


def test_a_stand_in_is_refused_and_else_matches_nothing(tmp_path: Path) -> None:
    device = {"name": "PoCL", "kind": "opencl", "driver": "P, 1", "details": {}}
    run = run_of(tmp_path / "run", device, target="adreno", stand_in=True)
    with pytest.raises(UsageError, match="a stand-in for adreno"):
        variants_of_runs([run], allow_stand_in=False)
    (variant,) = variants_of_runs([run], allow_stand_in=True)
    assert (variant.stand_in, variant.soc, variant.gpu, variant.driver) == (True, "", "", "")


def test_damaged_runs_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"name": "x", "kind": "cpu", "driver": "", "details": {}})
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "tasks": [{}]}))
    with pytest.raises(RecordError, match="damaged"):
        variants_of_runs([run], allow_stand_in=False)
    result["tasks"][0]["tuned_ms"] = None
    (run / "result.json").write_text(json.dumps(result))
    with pytest.raises(UsageError, match="no kernel with a valid time"):
        variants_of_runs([run], allow_stand_in=False)
    (run / "result.json").unlink()
    with pytest.raises(UsageError, match="has not ended"):
        variants_of_runs([run], allow_stand_in=False)


def test_one_kernel_of_each_role_is_checked_the_least_that_computes() -> None:
    specs = [
        ("relu:size=4", "forward"),
        ("matmul:m=80,n=24,k=40", "forward"),
        (MATMUL, "forward"),
    ]
    specs += [(MATMUL, "weight_grad"), ("sgd:size=8", "update"), ("sgd:size=4", "update")]
    kernels = [parse_kernel(*one) for one in specs]
    assert [(kernel.spec, kernel.role) for kernel in chosen(kernels)] == [
        (MATMUL, "forward"),
        ("sgd:size=4", "update"),
        (MATMUL, "weight_grad"),
    ]


def test_stored_data_has_the_sizes_of_the_operands(tmp_path: Path) -> None:
    kernel = parse_kernel(FUSED, "weight_grad")
    (check,) = write_checks([kernel], tmp_path)
    sizes = [(tmp_path / name).stat().st_size for name in check.inputs]
    assert sizes == [spec.bytes for spec in kernel.inputs]
    assert [(tmp_path / name).stat().st_size for name in check.expected] == [8 * 960]


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "int", "class", "_a", "größe", "a\n"])
def test_library_names_that_c_does_not_take(name: str) -> None:
    with pytest.raises(UsageError, match="not a name that C functions can begin with"):
        c_source.check_name(name)


def test_the_header_has_a_function_a_kernel_and_says_what_may_overlap() -> None:
    kernels = [parse_kernel(MATMUL, "forward"), parse_kernel(FUSED, "weight_grad")]
    text = c_source.header("lib", kernels, 64)
    assert re.search(
        r"LIB_API lib_status lib_matmul_forward_m8n24k40\(lib_context\* context, const float\* x, "
        r"const float\* weight, float\* y\);",
        text,
    )
    assert "@param new_weight float32 [24, 40], written; may be weight_1" in text
    assert "#define LIB_ALIGNMENT 64" in text
    assert "@" not in re.sub(r"@param", "", text)


def test_tables_have_null_where_a_variant_lacks_a_kernel() -> None:
    forward, gradient = (parse_kernel(MATMUL, role) for role in ("forward", "weight_grad"))
    every = with_safe_variant(
        [variant_of(forward, soc='a "chip"\\'), variant_of(gradient, name="b")], find("cpu")
    )
    text = c_source.library("lib", every, {one.name: ("avx2",) for one in every})
    name = forward.name
    assert f"kFunctions0[] = {{__tvm_ffi_v0__{name}, __tvm_ffi_v1__{name}, nullptr}}" in text
    assert '{"cpu", "a \\"chip\\"\\\\", "", 0, kFeatures1}' in text
    assert '"avx2", nullptr' in text
    assert [one.name for one in every] == [SAFE, "cpu", "b"]
    assert [len(one.kernels) for one in every] == [2, 1, 1]


def test_the_manifest_says_what_is_known_and_null_for_what_is_not() -> None:
    kernel = parse_kernel(FUSED, "weight_grad")
    every = with_safe_variant([variant_of(kernel, soc="chip", cluster="big")], find("cpu"))
    content = manifest(
        "c",
        "lib",
        "host",
        every,
        [Check(kernel, ("i",), ("e",))],
        {"cpu": {"extra": 1}},
        header="h",
    )
    assert (content["schema_version"], content["format"], content["header"]) == (2, "c", "h")
    assert content["safe_variant"]["name"] == SAFE
    safe, cpu = content["variants"]
    assert safe["match"] == {"soc": None, "gpu": None, "driver": None, "cluster": None}
    assert (cpu["match"]["soc"], cpu["cluster"], cpu["extra"]) == ("chip", "big", 1)
    (entry,) = content["kernels"]
    assert entry["in_place"] == [2]
    assert (entry["count"], entry["role"]) == (3, "weight_grad")
    assert entry["figures"]["cpu"]["tuned_ms"] == 0.5
    assert entry["figures"]["cpu"]["energy_mj"] is None
    assert entry["figures"][SAFE]["tuned"] is False
    assert [one["direction"] for one in entry["arguments"]] == ["in"] * 4 + ["out"]
    json.dumps(content)


def test_limits_of_a_program_are_those_of_its_largest_launch() -> None:
    launches = (
        Launch("a", (), (64, 8), (16, 4), 0),
        Launch("b", (), (32, 2, 2), (2, 2, 2), 128),
    )
    program = OpenCLProgram("", launches, (), 0, ())
    assert program.work_group_size == 64
    assert program.work_item_sizes == (16, 4, 2)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, ""),
        ({"max_threads_per_block": 32}, "a work-group of 64 work-items, where the device has 32"),
        (
            {"max_item_sizes": (8, 8, 8)},
            "a work-group of (16, 4) work-items, where the device has (8, 8, 8)",
        ),
        ({"max_local_memory_bytes": 512}, "1024 bytes of local memory, where the device has 512"),
        ({"max_alloc_bytes": 4095}, "a buffer of 4096 bytes, where the device has 4095 at most"),
        ({"fp16": False}, "half precision"),
    ],
)
def test_what_a_device_does_not_allow_is_named(limits: dict[str, Any], words: str) -> None:
    launches = (
        Launch("a", (), (64, 8), (16, 4), 0),
        Launch("b", (), (32, 2, 2), (2, 2, 2), 128),
    )
    program = OpenCLProgram("", launches, (64, 4096), 1024, ("cl_khr_fp16",))
    said = program.beyond(spaces.Limits(**{"fp16": True, **limits}), 128)
    assert said.startswith(words)
    assert bool(said) == bool(words)


EXPORTED = parse_kernel(MATMUL, "forward")


UNTUNED = figures_entry(Figures(), tuned=False)
ENTRY = {**kernel_entry(EXPORTED), "count": 1, "figures": {"v": UNTUNED}}
OTHER = {**kernel_entry(parse_kernel(MATMUL, "data_grad")), "count": 1, "figures": {"v": UNTUNED}}
CHECK = check_entry(check_of(0, EXPORTED, 1e-4))
DATA = CHECK["inputs"][0]
OF_NOTHING = {
    "target": "default", "cluster": None, "threads": None, "khz": None,
    "match": {"soc": None, "gpu": None, "driver": None, "cluster": None}, "device": None, "stand_in": False,
    "source": None, "kernels": 1,
}  # fmt: skip
VARIANT = {
    **OF_NOTHING, "name": "v", "library": DATA, "family": "cpu", "tvm_target": '{"kind": "llvm"}',
}  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    """A folder with the files of an export, whose example nothing may run."""
    folder.mkdir()
    for name in (
        *CHECK["inputs"],
        *CHECK["expected"],
        "include/kernels.h",
        "lib/libkernels.so",
        "lib/libkernels.a",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a")
    (folder / "example" / "example.py").write_text(
        f"from pathlib import Path\nPath({str(folder.parent / 'ran')!r}).touch()\n"
    )
    content = {
        "schema_version": 2,
        "format": "tvm",
        "name": "kernels",
        "platform": "any",
        "model": None,
        "batch": None,
        "stand_in": False,
        "versions": {"autotune": "0.1.0"},
        "safe_variant": None,
        "files": digests(folder),
        "variants": [VARIANT],
        "kernels": [ENTRY],
        "checks": [CHECK],
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


OF_OPENCL = {
    "tvm_target": '{"kind": "opencl"}',
    "limits": {"work_group_size": 64, "local_memory_bytes": 0, "buffer_bytes": 4096},
}
SAFE_VARIANT = {**OF_NOTHING, "name": "default", "cpu_features": []}
FAST = {**OF_NOTHING, "name": "v", "target": "cpu", "cpu_features": ["avx2", "fma"]}
C_ENTRY = {**ENTRY, "figures": {"default": UNTUNED, "v": UNTUNED}}
C_PARTS = {
    "format": "c", "platform": "host", **c_parts("kernels", [EXPORTED]), "variants": [SAFE_VARIANT, FAST],
    "kernels": [C_ENTRY], "safe_variant": safe_entry(),
}  # fmt: skip


def test_verify_refuses_what_cannot_run_here(tmp_path: Path) -> None:
    phone = written(tmp_path / "phone", **{**C_PARTS, "platform": "android-arm64"})
    with pytest.raises(UsageError, match="runs on Android only"):
        verify(phone, None)
    host = written(tmp_path / "host", **C_PARTS)
    with pytest.raises(UsageError, match="cannot run on qemu"):
        verify(host, "qemu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": 2.0}, "schema version 2"),
        ({"files": {}}, "files is empty"),
        ({"files": ["a"]}, "not an object of SHA-256"),
        ({"files": {"a": "b"}}, "not an object of SHA-256"),
        ({"files": {"../a": "0" * 64}}, "is not a valid file name"),
        ({"files": {"/etc/passwd": "0" * 64}}, "is not a valid file name"),
        ({"files": {"a//b": "0" * 64}}, "is not a valid file name"),
        ({"files": {"./a": "0" * 64}}, "is not a valid file name"),
        ({"files": {"a": "0" * 64, "a/b": "0" * 64}}, "is not a valid file name"),
        ({"files": {"a\n": "0" * 64}}, "is not a valid file name"),
        ({"files": {"x/" * 100 + "a": "0" * 64}}, "is not a valid file name"),
        ({"format": "exe"}, "format"),
        ({"name": 'a"; system("x'}, "name"),
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": [ENTRY, ENTRY]}, "twice"),
        ({"kernels": [{**ENTRY, "name": "x"}]}, "kernel .*: name has another value"),
        ({"kernels": [{**ENTRY, "spec": "matmul:m=0"}]}, "not known"),
        ({"kernels": [{**ENTRY, "in_place": [0]}]}, "kernel .*: in_place has another value"),
        ({"kernels": [{**ENTRY, "figures": None}]}, "figures: Input should be"),
        (
            {
                "kernels": [
                    {**ENTRY, "arguments": [{**ENTRY["arguments"][0], "shape": [2**40, 2**40]}]}
                ]
            },
            "kernel .*: arguments has another value",
        ),
        ({"checks": []}, "checks is empty"),
        (
            {"checks": [{**CHECK, "tolerance": 1e9}]},
            "tolerance of a check is missing, or larger than 0.1",
        ),
        (
            {"checks": [{**CHECK, "tolerance": 0.5}]},
            "tolerance of a check is missing, or larger than 0.1",
        ),
        ({"checks": [CHECK, CHECK]}, "checks must cover every kernel"),
        ({"checks": [{**CHECK, "kernel": "x"}]}, "checks must cover every kernel"),
        ({"checks": [{**CHECK, "role": "update"}]}, "check of .*: role has another value"),
        ({"checks": [{**CHECK, "inputs": ["/a"]}]}, "check of .*: inputs has another value"),
        ({"checks": [{**CHECK, "expected": []}]}, "check of .*: expected has another value"),
        (
            {"checks": [{**CHECK, "inputs": [], "expected": [DATA]}]},
            "check of .*: inputs has another value",
        ),
        ({"variants": []}, "variants is empty"),
        ({"variants": [VARIANT, {**VARIANT, "name": "ghost"}]}, "variants and the figures"),
        ({"variants": [{**VARIANT, "kernels": 25}]}, "variants and the figures"),
        ({"safe_variant": {"name": ["ghost"]}}, "safe.variant"),
        ({"variants": [{**VARIANT, "library": "/tmp/x.so"}]}, "not in files"),
        ({"variants": [{**VARIANT, "family": ["cpu"]}]}, "'v': family: "),
        ({"variants": [{**VARIANT, "family": None}]}, "key family is missing"),
        ({"runner": "/bin/sh"}, "not in files"),
        ({"platform": "moon"}, "platform"),
        ({**C_PARTS, "platform": "any"}, "platform"),
        ({**C_PARTS, "header": "../../../etc/passwd"}, "C library: header has another value"),
        (
            {**C_PARTS, "libraries": {**C_PARTS["libraries"], "shared": "/etc/passwd"}},
            "C library: libraries has another value",
        ),
        ({**C_PARTS, "functions": {}}, "C library: functions has another value"),
        ({**C_PARTS, "alignment_bytes": 2**52}, "C library: alignment_bytes has another value"),
        ({**C_PARTS, "kernels": [{**C_ENTRY, "count": -5}]}, "count: Input should be"),
        ({**C_PARTS, "kernels": [{**C_ENTRY, "count": 2**60}]}, "count: Input should be"),
        ({**C_PARTS, "kernels": [{**C_ENTRY, "count": True}]}, "count: Input should be"),
        ({**C_PARTS, "kernels": [{**C_ENTRY, "extra": 1}]}, "extra: is not a known key"),
        (
            {**C_PARTS, "variants": [SAFE_VARIANT, {**FAST, "threads": 10**6}]},
            "'v': threads: Input should be",
        ),
        ({**C_PARTS, "variants": [SAFE_VARIANT, {**FAST, "extra": 1}]}, "unknown key 'extra'"),
        ({**C_PARTS, "variants": [SAFE_VARIANT, {**FAST, "cpu_features": ["x"]}]}, "cpu_features"),
        ({**C_PARTS, "variants": [SAFE_VARIANT, {**FAST, "cpu_features": None}]}, "cpu_features"),
        (
            {**C_PARTS, "variants": [{**SAFE_VARIANT, "cpu_features": ["avx2"]}, FAST]},
            "safe.variant",
        ),
        ({**C_PARTS, "variants": [{**SAFE_VARIANT, "threads": 2}, FAST]}, "safe.variant"),
        ({**C_PARTS, "variants": [FAST, SAFE_VARIANT]}, "safe.variant"),
        ({**C_PARTS, "safe_variant": {**safe_entry(), "name": "v"}}, "safe.variant"),
        ({**C_PARTS, "safe_variant": None}, "safe.variant"),
        (
            {
                **C_PARTS,
                "kernels": [
                    {
                        **C_ENTRY,
                        "figures": {"default": {**UNTUNED, "tuned": True}, "v": UNTUNED},
                    }
                ],
            },
            "safe.variant",
        ),
        ({"safe_variant": safe_entry()}, "safe.variant"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"model": 7}, "damaged: model: "),
        ({"batch": -4}, "damaged: batch: "),
        ({"batch": True}, "damaged: batch: "),
        ({"stand_in": 1}, "damaged: stand_in: "),
        ({"stand_in": True}, "stand_in and the stand_in of the variants"),
        ({"versions": {"autotune": 1}}, "damaged: versions.autotune: "),
        ({"kernels": [{**ENTRY, "figures": {"v": {}}}]}, "figures.v.default_ms: Field required"),
        ({"kernels": [{**ENTRY, "figures": {"v": {**UNTUNED, "tuned_ms": -1.0}}}]}, "tuned_ms: "),
        ({"kernels": [{**ENTRY, "figures": {"v": {**UNTUNED, "tuned_ms": "1"}}}]}, "tuned_ms: "),
        ({"variants": [{**VARIANT, "khz": {"big": -1}}]}, "khz.big: "),
        ({"variants": [{**VARIANT, "match": {**VARIANT["match"], "soc": 5}}]}, "match.soc: "),
        ({"variants": [{**VARIANT, "match": {"soc": "a"}}]}, "match.gpu: Field required"),
        ({"variants": [{**VARIANT, "stand_in": 0}]}, "'v': stand_in: "),
        ({"variants": [{**VARIANT, "source": ["a"]}]}, "'v': source: "),
        ({"variants": [{**VARIANT, "tvm_target": "llvm"}]}, "not JSON"),
        (
            {"variants": [{**VARIANT, "tvm_target": '{"kind": "opencl"}'}]},
            "must have the kind llvm",
        ),
        ({"variants": [{**VARIANT, "tvm_target": 3}]}, "'v': tvm_target: "),
        ({"kernels": [ENTRY, OTHER]}, "checks must cover every kernel"),
        ({"versions": {"extra": "1"}}, "damaged: versions.extra"),
        ({"checks": [{**CHECK, "extra": 1}]}, "unknown key 'extra'"),
        ({"variants": [{**VARIANT, "cpu_features": []}]}, "unknown key 'cpu_features'"),
        ({**C_PARTS, "format": "opencl", "platform": "any", "launch_table": "x"}, "cpu_features"),
        (
            {
                **C_PARTS,
                "format": "opencl",
                "platform": "any",
                "launch_table": "x",
                "variants": [
                    {**OF_NOTHING, "name": name, **OF_OPENCL} for name in ("default", "v")
                ],
            },
            "OpenCL library: launch_table has another value",
        ),
    ],
)
def test_a_damaged_manifest_is_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecordError, match=words):
        verify(written(tmp_path / "out", **changes), None)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "words", [("avx2",), (), ("avx2", "avx512f", "fma"), ("avx", "avx2", "fma")]
)
def test_the_features_of_a_c_manifest_are_those_that_the_library_checks_for(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = written(tmp_path / "out", **C_PARTS)
    (out / "lib" / "libkernels.so").write_bytes(
        b"code\0" + b"".join(f"{word}\0".encode() for word in words) + b"code"
    )
    content = json.loads((out / "manifest.json").read_text())
    content["files"] = digests(out)
    (out / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match="and those that the library checks for do not match"):
        verify(out, None)


def test_a_manifest_that_is_no_manifest_is_refused(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    file = out / "manifest.json"
    text = file.read_text()
    file.write_text(text.replace('"checks"', '"cheques"'))
    with pytest.raises(RecordError, match="key checks is missing"):
        verify(out, None)
    file.write_text(text.replace(f'"{DATA}":', f'"{DATA}": "0", "{DATA}":'))
    with pytest.raises(RecordError, match="twice"):
        verify(out, None)
    file.write_text("{")
    with pytest.raises(RecordError, match=r"is damaged|is not valid JSON"):
        verify(out, None)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="no export"):
        verify(out, None)


def test_files_that_are_not_as_the_manifest_says_are_told_and_nothing_runs(tmp_path: Path) -> None:
    def linked(out: Path) -> None:
        (out / DATA).rename(out.parent / "a")
        (out / DATA).symlink_to(out.parent / "a")

    def linked_folder(out: Path) -> None:
        (out / "example" / "data").rename(out.parent / "data")
        (out / "example" / "data").symlink_to(out.parent / "data")

    def piped(out: Path) -> None:
        (out / DATA).unlink()
        os.mkfifo(out / DATA)

    def made_a_folder(out: Path) -> None:
        (out / DATA).unlink()
        (out / DATA).mkdir()

    changes: dict[tuple[str, str], Callable[[Path], object]] = {
        (DATA, "changed"): lambda out: (out / DATA).write_text("b"),
        (DATA, "missing"): lambda out: (out / DATA).unlink(),
        ("example/numpy.py", "unlisted"): lambda out: (out / "example/numpy.py").touch(),
        ("added/", "unlisted"): lambda out: (out / "added").mkdir(),
        ("pipe", "unlisted"): lambda out: os.mkfifo(out / "pipe"),
        ("link", "unlisted"): lambda out: (out / "link").symlink_to("/dev/zero"),
        ("example/?x", "unlisted"): lambda out: (out / "example/\x1bx").touch(),
        (DATA, "not a file"): linked,
    }
    cases = [
        *changes.items(),
        ((DATA, "not a file"), piped),
        ((DATA, "not a file"), made_a_folder),
    ]
    for number, (finding, change) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        out = written(tmp_path / str(number) / "out")
        change(out)
        verdict = verify(out, None)
        assert [(one.file, one.status) for one in verdict.files] == [finding]
        assert (verdict.ok, verdict.results) == (False, ())
        assert not (out.parent / "ran").exists()
    out = written(tmp_path / "out")
    linked_folder(out)
    assert {(one.file, one.status) for one in verify(out, None).files} == {
        ("example/data", "not a folder"),
        *((one, "missing") for one in (*CHECK["inputs"], *CHECK["expected"])),
    }


def test_a_changed_file_is_neither_copied_nor_read_beyond_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for size in (1 << 28, 3 << 30):
        out = written(tmp_path / f"of {size}")
        os.truncate(out / DATA, size)
        phases = []

        def report(phase: str, done: int, total: int, seen: list[str] = phases) -> None:
            seen.append(phase)
            assert not [one for one in temporary.rglob("*") if one.is_file()]

        began = time.monotonic()
        verdict = verify(out, None, report=report)
        assert [(one.file, one.status) for one in verdict.files] == [(DATA, "changed")]
        assert set(phases) == {"files"}
        assert time.monotonic() - began < 5


def test_an_example_sees_no_modules_of_its_folder_and_has_to_tell_of_every_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = written(tmp_path / "out")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "foreign"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "numpy.py").write_text("raise SystemExit('foreign')")
    example = out / "example" / "example.py"
    example.write_text(
        "import sys, numpy\n"
        "assert sys.flags.isolated and sys.flags.safe_path\n"
        "from pathlib import Path\n"
        f"assert not Path(__file__).is_relative_to({str(tmp_path)!r})\n"
        'print(\'{"variant": "v", "kernel": "none", "role": null, "status": "ok", "max_rel_error": 0, \'\n'
        '      \'"reason": ""}\')\n'
    )
    content = json.loads((out / "manifest.json").read_text())
    content["files"] = digests(out)
    (out / "manifest.json").write_text(json.dumps(content))
    verdict = verify(out, None)
    assert verdict.files == ()
    assert [(one.kernel, one.status) for one in verdict.results] == [
        ("none", "ok"),
        (EXPORTED.name, "not checked"),
    ]
    assert not verdict.ok


def test_an_example_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    (out / "example" / "example.py").write_text("while True: print('a' * 65536)\n")
    content = json.loads((out / "manifest.json").read_text())
    content["files"] = digests(out)
    (out / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(AutotuneError, match="wrote more than 16 MiB of output") as caught:
        verify(out, None)
    assert caught.value.exit_code == 1


def test_an_export_goes_into_no_folder_of_something_else(tmp_path: Path) -> None:
    def refused(out: Path, words: str) -> None:
        before = sorted(out.rglob("*"))
        with pytest.raises(UsageError, match=words):
            export([variant_of(parse_kernel(MATMUL, "forward"))], out, "tvm")
        assert sorted(out.rglob("*")) == before

    (tmp_path / "site" / "js").mkdir(parents=True)
    (tmp_path / "site" / "js" / "a").touch()
    (tmp_path / "site" / "manifest.json").write_text('{"name": "site", "files": {"js/a": "x"}}')
    refused(tmp_path / "site", "not part of an export")
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    refused(tmp_path / "empty", "folder/")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "js").symlink_to(tmp_path / "site" / "js")
    manifest = {"versions": {"autotune": "1"}, "files": {"js/a": "0", "../site/manifest.json": "0"}}
    (tmp_path / "linked" / "manifest.json").write_text(json.dumps(manifest))
    refused(tmp_path / "linked", "js")
    assert (tmp_path / "site" / "js" / "a").exists()
    # A listed file that somebody has changed since, or that is listed by somebody else.
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("work of years")
    manifest = {"versions": {"autotune": "1"}, "files": {"thesis.tex": "00"}}
    (tmp_path / "thesis" / "manifest.json").write_text(json.dumps(manifest))
    refused(tmp_path / "thesis", "thesis.tex was changed since")
    assert (tmp_path / "thesis" / "thesis.tex").read_text() == "work of years"
    (tmp_path / "other").mkdir()
    with Scratch("export", tmp_path / "other"):
        refused(tmp_path / "other", "another export is being written")
