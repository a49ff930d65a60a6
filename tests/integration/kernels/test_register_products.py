"""Products in registers on this host's processor: every tile gives the reference's result."""

from __future__ import annotations

import math

import pytest
from cpu_tiles import SPACE, built_tiles, check_tiles, sketched

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.formulations.conv2d_data_grad import wasted
from autotune.compiler.rules import cuts
from autotune.compiler.rules.tile_rules import tile_of
from autotune.workloads import Conv2d, parse_kernel

# Small kernels have short reductions, whose parts are shorter than any that are worth it.
PARTED = SPACE.model_copy(
    update={
        "rules": [
            rule.model_copy(update={"fewest_steps": 3}) if rule.kind == "register_product" else rule
            for rule in SPACE.rules
        ]
    }
)
ROLES = ("forward", "data_grad", "weight_grad")
CONVOLUTIONS = (
    "conv2d:n=2,c=8,h=6,w=8,k=16,r=3,s=3,stride=1,pad=1",
    "conv2d:n=1,c=16,h=7,w=7,k=8,r=1,s=1,stride=1,pad=0",
    "conv2d:n=2,c=8,h=9,w=6,k=24,r=5,s=3,stride=1,pad=2",
)
FEW_PIXELS = (
    "conv2d:n=2,c=40,h=3,w=3,k=12,r=3,s=3,stride=1,pad=1,channels_last=1",
    "conv2d:n=1,c=32,h=1,w=16,k=20,r=1,s=1,stride=1,pad=0,channels_last=1",
    "conv2d:n=1,c=64,h=4,w=5,k=8,r=3,s=2,stride=1,pad=2,dilation=2,channels_last=1",
)
MINIMAL = (
    "conv2d:n=3,c=16,h=9,w=11,k=24,r=3,s=3,stride=1,pad=1,channels_last=1",
    "conv2d:n=4,c=24,h=10,w=8,k=16,r=3,s=3,stride=1,pad=0,channels_last=1",
    "conv2d:n=1,c=16,h=14,w=13,k=32,r=3,s=3,stride=1,pad=2x1,channels_last=1",
)
"""Layers with Winograd's form."""
ODD_CHANNELS = (
    "conv2d:n=2,c=12,h=7,w=6,k=20,r=3,s=3,stride=1,pad=1",
    "conv2d:n=1,c=21,h=8,w=9,k=6,r=3,s=2,stride=1,pad=1x0,dilation=1x2",
)
STRIDED = (
    "conv2d:n=1,c=3,h=23,w=23,k=16,r=7,s=7,stride=2,pad=3",
    "conv2d:n=2,c=5,h=8,w=8,k=16,r=1,s=1,stride=2,pad=0",
)


def _kernels() -> list[tuple[str, str]]:
    convs = [
        (spec + last, role)
        for last in ("", ",channels_last=1")
        for roles, specs in (
            (ROLES, CONVOLUTIONS),
            (ROLES, ODD_CHANNELS),
            (("forward", "weight_grad"), STRIDED),
        )
        for spec in specs
        for role in roles
    ]
    matmuls = [
        (spec, role)
        for spec in (
            "matmul:m=12,n=20,k=32",
            "matmul:m=6,n=10,k=24",
            "matmul:m=16,n=7,k=96",
            "matmul:m=16,n=24,k=8",
            "bmm:b=3,m=12,n=16,k=24",
            "bmm:b=4,m=9,n=8,k=8",
            "bmm:b=2,m=13,n=13,k=16",
            "bmm:b=2,m=12,n=16,k=13",
            "matmul:m=20,n=10,k=30",
        )
        for role in ROLES
    ]
    followed = [
        ("matmul:m=4,n=20,k=32+bias.forward:n=4,c=20,s=1,relu=1", "forward"),
        ("matmul:m=4,n=6,k=16+sgd.update:size=96", "weight_grad"),
        ("matmul:m=4,n=6,k=16+momentum.update:size=96", "weight_grad"),
        ("matmul:m=4,n=6,k=16+adam.update:size=96", "weight_grad"),
        (f"{CONVOLUTIONS[0]}+bias.forward:n=2,c=16,s=48,relu=1", "forward"),
        (
            f"{CONVOLUTIONS[0]},channels_last=1+bias.forward:n=2,c=16,s=48,relu=1,channels_last=1",
            "forward",
        ),
        (f"{CONVOLUTIONS[0]},channels_last=1+relu.data_grad:size=768", "data_grad"),
        ("matmul:m=8,n=20,k=32+relu.data_grad:size=256", "data_grad"),
        # Once refused: TVM did not see that an index into the flat tensor and back is the index.
        (
            "conv2d:n=2,c=16,h=16,w=16,k=8,r=2,s=2,stride=2,pad=0,channels_last=1+expr.forward:(in f 1024)"
            "(in f 1024)(map 1024 = (select (le (at 0 a0) 0.0) 0.0 (at 1 a0)))(out 0)",
            "forward",
        ),
        (f"{CONVOLUTIONS[0]}+momentum.update:size=1152", "weight_grad"),
        (f"{CONVOLUTIONS[0]},channels_last=1+sgd.update:size=1152", "weight_grad"),
    ]
    odd = f"{ODD_CHANNELS[0]},channels_last=1"
    followed += [
        (f"{odd}+bias.forward:n=2,c=20,s=42,relu=1,channels_last=1", "forward"),
        (f"{odd}+relu.data_grad:size=1008", "data_grad"),
        (f"{odd}+sgd.update:size=2160", "weight_grad"),
    ]
    followed.append((f"{FEW_PIXELS[0]}+relu.data_grad:size=720", "data_grad"))
    followed += [(spec, role) for spec in MINIMAL for role in ("forward", "data_grad")]
    followed += [
        (f"{MINIMAL[0]}+bias.forward:n=3,c=24,s=99,relu=1,channels_last=1", "forward"),
        (f"{MINIMAL[0]}+relu.data_grad:size=4752", "data_grad"),
    ]
    return [*convs, *matmuls, *followed, *((spec, "data_grad") for spec in FEW_PIXELS)]


def _products(spec: str, role: str) -> list[str]:
    """Names of a kernel's formulations that the rule schedules; there is at least one."""
    rules = {rule.kind for rule in SPACE.rules}
    kernel = parse_kernel(spec, role)
    fitting = formulations(kernel, None, rules)
    found = [
        one.name for one in fitting if one.rule == "register_product" and cuts(PARTED, kernel, one)
    ]
    assert found
    return found


@pytest.mark.parametrize("spec", MINIMAL)
@pytest.mark.parametrize("role", ["forward", "data_grad"])
def test_minimal_filtering_is_for_layers_of_its_form(spec: str, role: str) -> None:
    """It is no formulation of layers that have too few tiles or channels, a stride, groups, or another window."""
    assert "winograd_product" in _products(spec, role)
    for other in ("h=4,w=4", "c=8", "stride=2", "dilation=2", "r=5,s=5", "groups=8"):
        fields = dict(part.split("=") for part in spec.partition(":")[2].split(","))
        fields |= dict(part.split("=") for part in other.split(","))
        text = ",".join(f"{name}={value}" for name, value in fields.items())
        found = formulations(parse_kernel(f"conv2d:{text}", role))
        assert "winograd_product" not in [one.name for one in found], other


def test_a_tile_of_a_like_kernel_may_be_none_of_this_one() -> None:
    """Records offer a small kernel's tile, without threads, to one that has them; such a search ended in a bug."""
    kernel = parse_kernel(CONVOLUTIONS[0], "forward")
    _, tiles, _ = sketched(kernel, "register_product")
    _, serial, _ = sketched(kernel, "register_product", SPACE.without_threads())
    own, others = [tile for tile in tiles.drawn(50) if tile.jobs > 1], list(serial.drawn(50))
    assert own
    assert all(map(tiles.has, own))
    assert others
    assert all(map(serial.has, others))
    assert not any(map(serial.has, own))


@pytest.mark.parametrize("spec", FEW_PIXELS)
def test_few_pixels_are_columns_of_filters_that_nobody_copies(spec: str) -> None:
    """Filters larger than the images: copying them took longer than the product."""
    assert "pixel_product" in _products(spec, "data_grad")
    kernel = parse_kernel(spec, "data_grad")
    filters = math.prod(kernel.inputs[1].shape)
    for _, schedule, _ in built_tiles(kernel, "pixel_product", 4):
        (main,) = schedule.mod.functions.values()
        copies = [math.prod(map(int, one.shape)) for one in main.body.block.alloc_buffers]
        assert copies
        assert max(copies) < filters


@pytest.mark.parametrize(("spec", "role"), _kernels())
def test_every_tile_is_right(spec: str, role: str, *, exhaustive: bool) -> None:
    tiles = 8 if exhaustive else 2
    for number, name in enumerate(_products(spec, role), len(spec)):
        for threads in (True, False) if exhaustive else (number % 2 == 0,):
            check_tiles(spec, role, name, tiles, threads=threads, space=PARTED)


@pytest.mark.parametrize("role", ROLES)
def test_every_kind_of_tile_has_a_schedule(role: str) -> None:
    """Parts of the outer reduction, of the inner, of both and of none; vectors of 8 and of 16 lanes."""
    rule, tiles, sketches = sketched(
        parse_kernel("conv2d:n=2,c=48,h=6,w=6,k=48,r=3,s=3,stride=1,pad=1", role),
        "register_product",
        PARTED,
    )
    drawn = {(tile.vector, tile.parts > 1, tile.cuts > 1): tile for tile in tiles.drawn(400)}
    kinds = {
        kind: tile_of(rule, sketches.schedule(tile).trace) == tile for kind, tile in drawn.items()
    }
    assert kinds == {(v, p, c): True for v in (8, 16) for p in (False, True) for c in (False, True)}


def test_no_vector_is_longer_than_registers_are() -> None:
    """A vector of 48 lanes is no array of LLVM's that it keeps in registers: three of 16 are."""
    kernel = parse_kernel(
        "conv2d:n=1,c=48,h=6,w=6,k=48,r=3,s=3,stride=1,pad=1,channels_last=1", "weight_grad"
    )
    wide = 0
    for tile, schedule, _ in built_tiles(kernel, "register_product", 24):
        wide += tile.lanes == 48
        assert f"T.vectorized({tile.lanes})" not in str(schedule.mod) or tile.lanes in (8, 16)
    assert wide


@pytest.mark.parametrize(
    ("spec", "role"),
    [
        ("conv2d:n=2,c=8,h=8,w=8,k=4,r=3,s=3,stride=1,pad=1", "forward"),
        ("conv2d:n=2,c=8,h=8,w=8,k=8,r=3,s=3,stride=1,pad=1,groups=8", "forward"),
        ("conv2d:n=2,c=8,h=8,w=8,k=8,r=3,s=3,stride=2,pad=1", "data_grad"),
        ("matmul:m=8,n=8,k=4", "weight_grad"),
    ],
)
def test_what_fills_no_vectors_or_is_no_product_has_no_such_tiles(spec: str, role: str) -> None:
    assert all(one.rule != "register_product" for one in formulations(parse_kernel(spec, role)))


@pytest.mark.parametrize("role", ROLES)
def test_taps_count_forwards(role: str) -> None:
    """With taps that count backwards LLVM works out the address of every element, for three times the time."""
    kernel = parse_kernel(
        "conv2d:n=1,c=16,h=6,w=6,k=16,r=3,s=3,stride=1,pad=1,channels_last=1", role
    )
    (one,) = formulations(kernel, ["register_product"])
    text = str(prim_func(kernel, one))
    assert "+ v_r" in text
    assert not any(f"- {tap}" in text or f"{tap} * -1" in text for tap in ("v_rr", "v_rs"))


BY_PHASES = (
    "conv2d:n=2,c=8,h=6,w=8,k=16,r=1,s=1,stride=2,pad=0",
    "conv2d:n=2,c=16,h=9,w=8,k=8,r=2,s=2,stride=2,pad=0",
    "conv2d:n=1,c=8,h=8,w=8,k=16,r=3,s=3,stride=2,pad=1",
    "conv2d:n=2,c=8,h=11,w=10,k=8,r=4,s=4,stride=2,pad=1",
    "conv2d:n=1,c=8,h=12,w=13,k=8,r=5,s=4,stride=3x2,pad=2x1",
    "conv2d:n=1,c=8,h=17,w=17,k=8,r=7,s=7,stride=2,pad=3",
    "conv2d:n=1,c=8,h=1,w=24,k=8,r=1,s=5,stride=1x3,pad=0x2",
    "conv2d:n=1,c=8,h=10,w=10,k=8,r=1,s=1,stride=3,pad=1",
)
FOLLOWED = (
    "conv2d:n=1,c=8,h=8,w=8,k=16,r=3,s=3,stride=2,pad=1,channels_last=1+add.data_grad:size=512"
    "+relu.data_grad:size=512",
    "conv2d:n=2,c=16,h=9,w=8,k=8,r=2,s=2,stride=2,pad=0,channels_last=1+relu.data_grad:size=2304",
)


@pytest.mark.parametrize(
    ("spec", "threads"),
    [
        pytest.param(spec, threads, marks=() if threads == number % 2 else pytest.mark.exhaustive)
        for number, spec in enumerate((*(f"{one},channels_last=1" for one in BY_PHASES), *FOLLOWED))
        for threads in (False, True)
    ],
)
def test_strided_gradients_are_right_in_every_tile(
    spec: str, *, threads: bool, exhaustive: bool
) -> None:
    for name in _products(spec, "data_grad"):
        check_tiles(spec, "data_grad", name, 12 if exhaustive else 4, threads=threads)


@pytest.mark.parametrize(
    ("spec", "products"), [(BY_PHASES[0], 1.0), (BY_PHASES[1], 1.0), (BY_PHASES[2], 16 / 9)]
)
def test_phases_multiply_few_zeros(spec: str, products: float) -> None:
    kernel = parse_kernel(f"{spec},channels_last=1", "data_grad")
    conv = kernel.operator
    assert isinstance(conv, Conv2d)
    assert wasted(conv) == pytest.approx(products)
