"""What an export says of itself: texts, tables and the manifest."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.compiler import spaces
from autotune.compiler.export import c_source
from autotune.compiler.export.checks import Check, chosen, write_checks
from autotune.compiler.export.launches import Launch, OpenCLProgram
from autotune.compiler.export.manifest import digests, manifest
from autotune.compiler.export.variants import (
    SAFE,
    ExportedKernel,
    Figures,
    Variant,
    variants_of_runs,
    with_safe_variant,
)
from autotune.compiler.export.verify import verify
from autotune.compiler.request import Cores, TuneRequest
from autotune.compiler.targets import find
from autotune.errors import RecordError, UsageError
from autotune.records import Result, TaskResult
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
        "from autotune.compiler.export import exporter, verify, variants, manifest\n"
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


def test_verify_refuses_what_cannot_run_here(tmp_path: Path) -> None:
    content = {
        "schema_version": 2, "format": "c", "platform": "android-arm64", "files": {}, "variants": [],
        "checks": [],
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="runs on Android only"):
        verify(tmp_path, None)
    (tmp_path / "manifest.json").write_text(json.dumps({**content, "platform": "host"}))
    with pytest.raises(UsageError, match="cannot run on qemu"):
        verify(tmp_path, "qemu")
    del content["checks"]
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match="parts are missing"):
        verify(tmp_path, None)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RecordError, match="is damaged"):
        verify(tmp_path, None)


def test_a_changed_file_is_found_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_text("b")
    content = {
        "schema_version": 2, "format": "c", "platform": "host", "files": digests(tmp_path), "variants": [],
        "checks": [],
    }  # fmt: skip
    assert set(content["files"]) == {"a", "folder/b"}  # type: ignore[arg-type]
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    (tmp_path / "a").write_text("A")
    (tmp_path / "folder" / "b").unlink()
    verdict = verify(tmp_path, None)
    assert {(one.file, one.status) for one in verdict.files} == {
        ("a", "changed"),
        ("folder/b", "missing"),
    }
    assert (verdict.ok, verdict.results, verdict.checked_files) == (False, (), 2)
