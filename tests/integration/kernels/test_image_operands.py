"""Kernels whose operands are images or in half precision, on a real OpenCL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from exports import DATA, compiled, exported
from opencl_drivers import driver

from autotune.compiler.export.launches import opencl_program
from autotune.compiler.export.variants import ExportedKernel, Figures, Variant
from autotune.compiler.export.verification import verify
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.native import opencl_sidecar
from autotune.compiler.native.native_build import rpc_sources
from autotune.compiler.opencl_c import image_reads, opencl_source
from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches, tile_of, tiles_of
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import (
    Kernel,
    max_relative_error,
    parse_kernel,
    parse_operator,
    random_inputs,
    reference,
)

GOLDEN = Path(__file__).parents[2] / "golden"
SPEC = find("adreno")
SPACE = spaces.load(SPEC.space_path()).model_copy(
    update={"limits": spaces.Limits(image_buffer_max=65536)}
)
ROLES = ("forward", "data_grad", "weight_grad")
HALF = SPACE.with_half_storage()
WINDOWS = (
    ("conv2d:n=2,c=4,h=8,w=8,k=4,r=3,s=3,stride=1,pad=1,groups=4", "forward", "windows"),
    ("conv2d:n=2,c=4,h=8,w=8,k=4,r=3,s=3,stride=2,pad=1,groups=4", "data_grad", "windows"),
    ("conv2d:n=2,c=4,h=8,w=8,k=4,r=3,s=3,stride=1,pad=1,groups=4", "weight_grad", "windows"),
    ("conv2d:n=2,c=3,h=16,w=16,k=8,r=3,s=3,stride=2,pad=1", "forward", "few_channels"),
    ("conv2d:n=2,c=3,h=16,w=16,k=8,r=3,s=3,stride=2,pad=1", "data_grad", "few_channels"),
)
KERNELS = (
    ("matmul:m=16,n=64,k=32", "data_grad", "gemm"),
    ("conv2d:n=2,c=8,h=8,w=8,k=16,r=3,s=3,stride=1,pad=1", "forward", "gemm"),
    ("conv2d:n=4,c=8,h=8,w=8,k=8,r=3,s=3,stride=1,pad=1", "weight_grad", "winograd_gemm"),
)


PACKED = (
    ("matmul:m=16,n=64,k=32", "forward"),
    *(("conv2d:n=2,c=8,h=8,w=8,k=16,r=3,s=3,stride=1,pad=1", role) for role in ROLES),
)
BUFFERS = {"row_image": False, "column_image": False}


def _scheduled(
    kernel: Kernel, name: str, wanted: dict[str, Any], space: spaces.Space | None = None
) -> Any:
    """A schedule whose tile is as wanted; its tile comes back from its trace."""
    (one,) = (one for one in formulations(kernel) if one.name == name)
    rule = tile_rule(space or (HALF if wanted.get("half") else SPACE), one.rule)
    module = tvm.IRModule({"main": prim_func(kernel, one)})
    sketches = Sketches(rule, module)
    tile = next(
        tile
        for seed in range(16)
        for tile in tiles_of(rule, module, seed).drawn(4000)
        if all(getattr(tile, key) == value for key, value in wanted.items())
    )
    schedule = sketches.schedule(tile)
    assert tile_of(rule, schedule.trace) == tile
    return schedule.mod


def _built(kernel: Kernel, module: Any) -> tuple[str, float]:
    """The source of a schedule, and the error of its result."""
    opencl_sidecar.ensure()
    device = tvm.device("opencl", 0)
    with improved_source(module):
        built = tvm.compile(module, tvm_target(SPEC, SPACE.limits))
    inputs = random_inputs(kernel, 1)
    (expected,) = reference(kernel, inputs)
    result = tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"), device=device)
    for _ in range(2):  # The second call has the images of the first.
        built["main"](*(tvm.runtime.tensor(one, device=device) for one in inputs), result)
    return str(built.mod.imports[0].inspect_source()), max_relative_error(result.numpy(), expected)


def _images_of(source: str) -> list[image_reads.Image]:
    """What the kernels of a source read as images."""
    functions = ("main_kernel", *(f"main_kernel_{n}" for n in range(1, 4)))
    return [
        one
        for function in functions
        if f"void {function}(" in source
        for one in image_reads.images(source, function).values()
    ]


@pytest.mark.parametrize(("spec", "role", "name"), KERNELS)
@pytest.mark.parametrize("sides", [("row",), ("column",), ("row", "column")])
def test_an_operand_that_is_an_image_gives_the_same_result(
    spec: str, role: str, name: str, sides: tuple[str, ...]
) -> None:
    kernel = Kernel(parse_operator(spec), role)
    wanted: dict[str, Any] = {f"{side}_image": side in sides for side in ("row", "column")}
    wanted |= {"staged": True}  # Straight into registers reads may be eight wide, and no texel is.
    source, error = _built(kernel, _scheduled(kernel, name, wanted))
    assert len(_images_of(source)) == len(sides)
    assert error < 1e-5


@pytest.mark.parametrize(("spec", "role", "name"), WINDOWS)
def test_windows_that_are_read_from_images_give_the_same_result(
    spec: str, role: str, name: str
) -> None:
    kernel = Kernel(parse_operator(spec), role)
    source, error = _built(kernel, _scheduled(kernel, name, {"image": True}))
    assert len(_images_of(source)) == (2 if role == "weight_grad" else 1), source
    assert error < 1e-5
    plain, error = _built(kernel, _scheduled(kernel, name, {"image": False}))
    assert "AUTOTUNE_READ" not in plain
    assert error < 1e-5


@pytest.mark.parametrize(("spec", "role", "name"), KERNELS)
@pytest.mark.parametrize("pipelined", [False, True])
def test_operands_in_half_precision_are_summed_in_single(
    spec: str, role: str, name: str, *, pipelined: bool
) -> None:
    kernel = Kernel(parse_operator(spec), role)
    wanted = {"half": True, "staged": True, "pipelined": pipelined} | BUFFERS
    source, error = _built(kernel, _scheduled(kernel, name, wanted))
    assert set(re.findall(r"__local ([a-z]+)\d* \w+\[", source)) == {"ushort"}
    assert ("__global half*" in source) == (name == "winograd_gemm")
    # A rounding to 11 bits is off by 2^-12 of a value at most; sums of products average that.
    assert 1e-5 < error < (2e-2 if name == "winograd_gemm" else 2e-3)


@pytest.mark.parametrize(("spec", "role"), PACKED)
@pytest.mark.parametrize("shared", [{}, {"parts": 2}])
def test_operands_that_go_straight_into_registers_are_packed_before(
    spec: str, role: str, shared: dict[str, int]
) -> None:
    """In kernels of their own, the image of a convolution with as many elements as it has."""
    kernel = Kernel(parse_operator(spec), role)
    wanted = {"half": True, "staged": False} | BUFFERS | shared
    source, error = _built(kernel, _scheduled(kernel, "gemm", wanted))
    packing = re.findall(
        r"__kernel void \w+\(__global float\* restrict \w+, __global half\* restrict (\w+)\)",
        source,
    )
    assert len(packing) == 2
    assert "ushort" not in source
    for name in packing:
        assert source.count(f"vstore_half({name.removesuffix('_global_ptr')}_ptr[") == 1
    assert 1e-5 < error < 2e-3


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize(
    "update",
    [
        "",
        pytest.param("+sgd.update:size=256", marks=pytest.mark.exhaustive),
        "+momentum.update:size=256",
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_sums_and_gradients_are_in_single_precision(staged: bool, update: str, parts: int) -> None:
    """They are beyond what half precision has, up to 65504; what would keep them so is refused."""
    kernel = parse_kernel(f"matmul:m=16,n=16,k=16{update}", "weight_grad")
    wanted = {"half": True, "staged": staged, "parts": parts} | BUFFERS
    module = _scheduled(kernel, "gemm", wanted)
    inputs = random_inputs(kernel, 1)
    inputs[:2] = [200 * np.abs(one) for one in inputs[:2]]
    expected = reference(kernel, inputs)
    opencl_sidecar.ensure()
    device = tvm.device("opencl", 0)
    results = [
        tvm.runtime.tensor(np.full(one.shape, np.nan, "float32"), device=device) for one in expected
    ]
    if update.startswith("+momentum") and parts > 1 and not staged:
        with improved_source(module), pytest.raises(RuntimeError, match="puts another result"):
            tvm.compile(module, tvm_target(SPEC, SPACE.limits))
        return
    with improved_source(module):
        built = tvm.compile(module, tvm_target(SPEC, SPACE.limits))
    built["main"](*(tvm.runtime.tensor(one, device=device) for one in inputs), *results)
    assert max(np.abs(one).max() for one in expected) > (65504 if not update else 600)
    for result, right in zip(results, expected, strict=True):
        assert max_relative_error(result.numpy(), right) < 2e-3


def test_a_device_whose_images_are_too_short_reads_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(parse_operator("matmul:m=16,n=64,k=32"), "data_grad")
    module = _scheduled(kernel, "gemm", {"row_image": True, "column_image": True})
    monkeypatch.setattr(
        opencl_source,
        "image_operands",
        lambda module: {"main": {"dy_ptr": 1 << 50, "weight_ptr": 32 * 64}},
    )
    source, error = _built(kernel, module)
    assert max(image.texels for image in image_reads.images(source, "main_kernel").values()) > 1e9
    assert error < 1e-5


@pytest.mark.parametrize(
    ("spec", "role", "name"), [KERNELS[2], ("matmul:m=16,n=16,k=512", "forward", "gemm")]
)
def test_every_kernel_of_a_schedule_fits_a_small_device(spec: str, role: str, name: str) -> None:
    """The kernels beside the product too: transforms, and the sum of a shared reduction's parts."""
    limits = spaces.Limits(max_threads_per_block=64, max_item_sizes=(48, 64, 64))
    space = SPACE.model_copy(update={"limits": limits})
    kernel = Kernel(parse_operator(spec), role)
    module = _scheduled(kernel, name, {"parts": 2}, space)
    program = opencl_program(kernel.name, module, tvm_target(SPEC, limits))
    assert len(program.launches) >= 2
    assert program.beyond(limits, 0) == ""


def _variant(kernel: Kernel, module: Any, space: spaces.Space = SPACE) -> Variant:
    def program(target: Any) -> Any:
        return module

    tuned = ExportedKernel(kernel, program, tuned=True, count=1, figures=Figures())
    return Variant("images", SPEC, space, (tuned,))


@pytest.mark.parametrize(
    ("spec", "role", "name", "staged"),
    [
        (*KERNELS[2], True),
        (*KERNELS[0], False),
        *(
            pytest.param(*one, marks=pytest.mark.exhaustive)
            for one in ((*KERNELS[0], True), (*KERNELS[1], True), (*KERNELS[1], False))
        ),
    ],
)
def test_an_export_keeps_operands_in_half_precision(
    spec: str, role: str, name: str, tmp_path: Path, *, staged: bool
) -> None:
    kernel = Kernel(parse_operator(spec), role)
    wanted = {"half": True, "staged": staged} | BUFFERS
    variant = _variant(kernel, _scheduled(kernel, name, wanted), HALF)
    exported([variant], tmp_path / "out", "opencl", check_all=True)
    sources = [path.read_text() for path in (tmp_path / "out" / "kernels").iterdir()]
    kept = "__local ushort" if staged else "__global half*"
    assert any(kept in source for source in sources)
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]


@pytest.mark.parametrize("too_long", [False, True])
def test_an_export_reads_images_where_the_device_has_them(
    *, too_long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, role, name = KERNELS[2]
    kernel = Kernel(parse_operator(spec), role)
    module = _scheduled(kernel, name, {"row_image": True, "column_image": True, "row_load": 4})
    if too_long:
        known = image_reads.image_operands
        monkeypatch.setattr(
            opencl_source,
            "image_operands",
            lambda module: {
                name: dict.fromkeys(operands, 1 << 50) for name, operands in known(module).items()
            },
        )
    exported([_variant(kernel, module)], tmp_path / "out", "opencl", check_all=True)
    sources = [path.read_text() for path in (tmp_path / "out" / "kernels").iterdir()]
    assert any("AUTOTUNE_READ4(" in source for source in sources)
    table = (tmp_path / "out" / "launch_table.json").read_text()
    assert '"channels": 4' in table
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kernel, Path]:
    """A kernel that reads images, and its export."""
    spec, role, name = KERNELS[2]
    kernel, out = Kernel(parse_operator(spec), role), tmp_path_factory.mktemp("reading") / "out"
    module = _scheduled(kernel, name, {"row_image": True, "column_image": True, "row_load": 4})
    exported([_variant(kernel, module)], out, "opencl", check_all=True)
    return kernel, out


@pytest.fixture(scope="module")
def loader(reading: tuple[Kernel, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that launches kernels of an export."""
    program = tmp_path_factory.mktemp("loader") / "loader"
    return compiled(
        DATA / "loader.cc", program, f"-I{reading[1]}/include", "-ldl", "-lpthread", compiler="g++"
    )  # fmt: skip


def test_an_export_reads_buffers_where_the_driver_makes_no_image(
    reading: tuple[Kernel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path, NO_IMAGES="1")))
    verdict = verify(reading[1], None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]


def test_a_kernel_that_cannot_be_made_without_images_says_so_each_time(
    reading: tuple[Kernel, Path], loader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, out = reading[0], tmp_path / "out"
    shutil.copytree(reading[1], out)
    variants = json.loads((out / "launch_table.json").read_text())["variants"]
    (recipe,) = (one["kernels"][kernel.name] for one in variants if one["name"] == "images")
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path)))
    monkeypatch.setenv("NO_IMAGES", "1")
    done = subprocess.run(
        [loader, out, kernel.name, "variant=images", f"spoil={out / recipe['source']}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.startswith("error 5 kernel "), done


def test_images_are_there_as_long_as_launches_read_them(
    reading: tuple[Kernel, Path], loader: Path
) -> None:
    """PoCL does not keep an image over a buffer that is released before the launch that reads it has ended."""
    kernel, out = reading
    done = subprocess.run(
        [loader, out, kernel.name, "variant=images", "times=200", "threads=2"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "ok images compiled=1 cached=0\n", done


@pytest.mark.parametrize("made", [True, False])
def test_a_library_for_tvm_reads_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """And buffers, where the driver announces images and makes none."""
    if not made:
        monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path)))
        monkeypatch.setenv("NO_IMAGES", "1")
    spec, role, name = KERNELS[0]
    kernel = Kernel(parse_operator(spec), role)
    module = _scheduled(kernel, name, {"row_image": True, "column_image": True})
    exported([_variant(kernel, module)], tmp_path / "out", "tvm", check_all=True)
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]


@pytest.mark.parametrize(
    ("form", "spec", "role", "name"),
    [
        ("tvm", *KERNELS[0]),
        *(("opencl", *one) for one in (KERNELS[2], WINDOWS[0], WINDOWS[3])),
        *(
            pytest.param("opencl", *one, marks=pytest.mark.exhaustive)
            for one in (KERNELS[0], WINDOWS[1], WINDOWS[2], WINDOWS[4])
        ),
        *(
            pytest.param("tvm", *one, marks=pytest.mark.exhaustive)
            for one in (KERNELS[2], *WINDOWS)
        ),
    ],
)
def test_operands_that_are_too_long_for_one_dimension_are_images_of_two(
    form: str, spec: str, role: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    kernel = Kernel(parse_operator(spec), role)
    product = {
        "row_image": True,
        "column_image": True,
        "row_load": 4,
        "column_load": 4,
    }  # One width.
    module = _scheduled(kernel, name, product if "gemm" in name else {"image": True})
    exported([_variant(kernel, module)], tmp_path / "out", form, check_all=True)
    monkeypatch.setenv("AUTOTUNE_OPENCL_LIBRARY", str(driver(tmp_path, IMAGES_2D=str(made))))
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]
    assert made.exists()


def test_images_have_the_form_that_a_device_has(tmp_path: Path) -> None:
    """Rows of one power of two that the device allows, as many as it allows, and formats that it has; else none."""
    program = compiled(
        DATA / "images.cc", tmp_path / "images", f"-I{rpc_sources() / 'opencl_loader'}", compiler="g++"
    )  # fmt: skip
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.stdout == (GOLDEN / "opencl_images.txt").read_text(), done
