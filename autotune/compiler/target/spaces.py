"""Search spaces as data: reads and validates `search_spaces/*.toml`. Errors name file, key and reason."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    Field,
    PositiveFloat,
    ValidationError,
)

from autotune.errors import UsageError, choices
from autotune.reading import FromOutside, complaint, read_toml

if TYPE_CHECKING:
    from autotune.compiler.formulations import Formulation

_LARGEST = 2**53 - 1  # The largest integer that JSON represents exactly.
LARGEST_TOLERANCE = 0.1
"""A larger relative error is no right result, whatever the precision."""
PositiveInt = Annotated[int, Field(gt=0, le=_LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=_LARGEST)]
Times = Annotated[int, Field(gt=0, le=100_000)]
"""A number of schedules or of measurements. The limit keeps a search from running forever."""
Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=256)]
Vectors = Annotated[tuple[Literal[1, 2, 4, 8, 16], ...], Field(min_length=1)]
"""OpenCL's vector widths, except 3: vectors of three elements lie four elements apart."""
Flags = Annotated[tuple[bool, ...], Field(min_length=1)]
ThreadAxis = Literal["blockIdx.x", "blockIdx.y", "vthread.x", "threadIdx.x", "threadIdx.y"]


class InlineConstants(FromOutside):
    """Inlines blocks that hold one constant."""

    kind: Literal["inline_constants"]


class AutoInline(FromOutside):
    """Inlines injective blocks into their producer or consumer."""

    kind: Literal["auto_inline"]
    into_producer: bool = False
    into_consumer: bool = True
    inline_constant_tensor: bool = True
    allow_if_then_else: bool = Field(
        default=False, description="Inline padding too, at the price of a test at each element."
    )
    require_ordered: bool = Field(
        default=True,
        description="Refuse to inline across a transpose, which would spoil the reads.",
    )
    keep: tuple[str, ...] = Field(
        default=("tirx.exp",), description="Operations too dear to compute again."
    )


class AddRFactor(FromOutside):
    """Splits a reduction into partial results that run in parallel or in vector lanes."""

    kind: Literal["add_rfactor"]
    max_jobs_per_core: PositiveInt = 16
    max_innermost_factor: PositiveInt = 64


class CrossThreadReduction(FromOutside):
    """Lets the threads of a work-group share one reduction."""

    kind: Literal["cross_thread_reduction"]
    thread_extents: tuple[PositiveInt, ...]


class Reuse(FromOutside):
    """Caching of a tile's operands or result at the given tiling levels."""

    required: Literal["may", "must"]
    levels: tuple[PositiveInt, ...]
    scope: Literal["global", "shared", "local"]


class MultiLevelTiling(FromOutside):
    """Tiles loops with data reuse: S a spatial level, R a reduction level."""

    kind: Literal["multi_level_tiling"]
    structure: Annotated[str, Field(pattern=r"^S+[SR]*R[SR]*$")]
    thread_axes: tuple[ThreadAxis, ...] = ()
    max_innermost_factor: PositiveInt = 64
    vector_loads: tuple[PositiveInt, ...] = ()
    reuse_read: Reuse | None = None
    reuse_write: Reuse | None = None


class ParallelVectorizeUnroll(FromOutside):
    """Runs outer loops in parallel, inner ones as vectors, and unrolls what lies between."""

    kind: Literal["parallel_vectorize_unroll"]
    max_jobs_per_core: int = Field(default=16, ge=-1)
    max_vectorize_extent: int = Field(default=64, ge=-1)
    unroll_steps: tuple[NonNegativeInt, ...] = (0, 16, 64, 512)
    explicit_unroll: bool = True


class RandomComputeLocation(FromOutside):
    """Moves a producer block into one of its consumer's loops."""

    kind: Literal["random_compute_location"]


class AutoBind(FromOutside):
    """Binds the loops of blocks that no tiling touched to the GPU's grid."""

    kind: Literal["auto_bind"]
    max_blocks: PositiveInt = 256
    thread_extents: tuple[PositiveInt, ...] = (32, 64, 128, 256)


class ByTiles(FromOutside):
    """A rule that schedules formulations of its own, and searches their tiles by itself."""

    alone: bool = Field(
        default=False,
        strict=True,
        description="Whether no other formulation is tried where this rule schedules one: on a large GPU those "
        "without tiles in local memory take seconds.",
    )


class ByGroups(ByTiles):
    """One that cuts them among work-groups of an OpenCL device."""

    fewest_items: PositiveInt = Field(default=32, description="Fewest work-items of a work-group.")
    images: Flags = Field(
        default=(False,),
        description="Whether an operand is read as an image, where the device has such.",
    )

    def image_choices(self, limits: Limits) -> Sequence[bool]:
        """Returns the choices for reading an operand as an image on a device with such limits."""
        return self.images if limits.image_buffer_max else (False,)


class ImplicitGemm(ByGroups):
    """Cuts the product of a `gemm` formulation into tiles of work-groups, work-items and registers.

    A work-group's tile is strided x items x vector rows and as many columns; see `compiler/rules/implicit_gemm.py`.
    """

    kind: Literal["implicit_gemm"]
    row_items: Sizes = Field(default=(1, 2, 4, 8, 16, 32), description="Work-items along the rows.")
    column_items: Sizes = Field(
        default=(4, 8, 16, 32, 64),
        description="Work-items along the columns, which are contiguous.",
    )
    strided: Sizes = Field(
        default=(1, 2, 3, 4), description="Parts of a work-item's tile that lie apart."
    )
    vectors: Vectors = Field(
        default=(1, 2, 4, 8), description="Neighbouring rows or columns of such a part."
    )
    depths: Sizes = Field(
        default=(4, 8, 16, 32), description="Steps of the reduction that are gathered at once."
    )
    unrolled: Sizes = Field(
        default=(1, 4, 8, 16), description="Steps of the reduction that are straight-line code."
    )
    loads: Vectors = Field(default=(1, 2, 4), description="Elements of a load from global memory.")
    parts: Sizes = Field(
        default=(2, 4, 8, 16, 32, 64, 128),
        description="Work-groups that share a reduction; a second kernel adds what they found.",
    )
    slices: Sizes = Field(
        default=(2, 4, 8),
        description="Work-items of a group that share a reduction of few results, and add what they found in local "
        "memory; never where that is ordinary memory.",
    )
    staged: Flags = Field(
        default=(True,),
        description="Whether operands go through local memory; never where that is ordinary memory.",
    )
    thin: NonNegativeInt = Field(
        default=0,
        description="Up to this many rows, columns may be loaded straight into registers, since few multiply-adds "
        "need each of their elements.",
    )
    pipelined: Flags = Field(
        default=(False, True),
        description="Whether the next tile is gathered while this one is multiplied.",
    )
    half: Flags = Field(
        default=(False,),
        description="Whether operands are kept in half precision on their way, which takes a larger tolerance.",
    )
    most_accumulators: PositiveInt = Field(
        default=128, description="Most results that a work-item keeps in registers."
    )
    most_registers: PositiveInt = Field(
        default=255, description="Most values that a work-item keeps in registers."
    )
    most_unrolled: PositiveInt = Field(
        default=1024,
        description="Most multiply-adds of a work-item in straight-line code: more compiles slowly.",
    )


class Depthwise(ByGroups):
    """Cuts the planes of a depthwise convolution and its gradients among work-items, each with some neighbours.

    What a work-item's windows see is read into registers once; see `compiler/rules/depthwise.py`.
    """

    kind: Literal["depthwise"]
    planes: Sizes = Field(default=(1, 2, 4, 8, 16, 32), description="Planes of a work-group.")
    row_items: Sizes = Field(
        default=(1, 2, 4, 7, 8, 14, 16, 28, 32), description="Work-items along the rows."
    )
    column_items: Sizes = Field(
        default=(1, 2, 4, 7, 8, 14, 16, 28, 32, 56),
        description="Work-items along the columns, which are contiguous.",
    )
    own: Sizes = Field(
        default=(1, 2, 4, 7, 8), description="Neighbouring rows or columns of a work-item."
    )
    most_registers: PositiveInt = Field(
        default=160, description="Most values that a work-item keeps in registers."
    )


class FewChannels(ByGroups):
    """Cuts convolutions of images of few channels, and their data gradients, by windows in registers.

    See `compiler/rules/few_channels.py`.
    """

    kind: Literal["few_channels"]
    channels: Sizes = Field(
        default=(4, 8, 12, 16, 32),
        description="Channels of a forward pass's result that a work-item has.",
    )
    channel_items: Sizes = Field(default=(1, 2, 4, 8), description="Work-items along those.")
    row_items: Sizes = Field(
        default=(1, 2, 3, 4, 5, 7, 8, 14, 15, 16),
        description="Work-items along the rows of positions.",
    )
    column_items: Sizes = Field(
        default=(4, 7, 8, 12, 14, 15, 16, 20, 28, 30, 32, 56, 60, 64, 112),
        description="Work-items along their columns, which are contiguous.",
    )
    own: Sizes = Field(
        default=(1, 2, 3, 4, 5, 7, 8),
        description="Neighbouring rows or columns of positions of a work-item.",
    )
    depths: Sizes = Field(
        default=(1, 2, 4, 8, 16),
        description="Channels of what is read whose taps are gathered at once.",
    )
    most_registers: PositiveInt = Field(
        default=200, description="Most values that a work-item keeps in registers."
    )
    most_unrolled: PositiveInt = Field(
        default=1536,
        description="Most multiply-adds of a work-item in straight-line code: more compiles slowly.",
    )


class GroupAttention(ByTiles):
    """Attention on an OpenCL device: a work-group has a strip of scores in local memory.

    See `compiler/rules/group_attention.py`.
    """

    kind: Literal["group_attention"]
    items: Sizes = Field(default=(8, 16, 32, 64, 128, 256), description="Work-items of a group.")
    strips: Sizes = Field(
        default=(4, 8, 12, 16, 20, 24, 32, 48, 64),
        description="Neighbouring queries, or keys, whose scores with all others a group has.",
    )
    rows: Sizes = Field(default=(1, 2, 4, 8), description="Rows of scores of a work-item.")
    lanes: Sizes = Field(default=(1, 2, 4, 8), description="Columns of scores of a work-item.")
    steps: Sizes = Field(
        default=(1, 2, 4, 8), description="Steps of the sums that are straight-line code."
    )
    most_accumulators: PositiveInt = Field(
        default=64, description="Most results that a work-item keeps in registers."
    )
    most_unrolled: PositiveInt = Field(
        default=512,
        description="Most multiply-adds of a work-item in straight-line code: more compiles slowly.",
    )


class ByThreads(ByTiles):
    """One that shares them among a processor's threads."""

    threads: bool = Field(default=True, description="Whether threads share the work.")


class ColumnReduction(ByThreads):
    """Sums rows with the columns as vectors, on a CPU; see `compiler/rules/column_reduction.py`."""

    kind: Literal["row_sums"]
    columns: Sizes = Field(
        default=(8, 16, 32, 64), description="Neighbouring columns that are summed in registers."
    )
    unrolled: Sizes = Field(default=(1, 2, 4), description="Rows that are straight-line code.")


class VectorConcat(ByThreads):
    """Joins tensors along channels that are last, on a CPU, in vectors; see `compiler/rules/concat.py`."""

    kind: Literal["joined_parts"]
    lanes: Sizes = Field(
        default=(8, 16, 32, 64), description="Neighbouring channels that are copied at once."
    )


class VectorRows(ByThreads):
    """Depthwise convolutions with channels first, on a CPU: rows are vectors.

    See `compiler/rules/vector_rows.py`.
    """

    kind: Literal["vector_rows"]
    jobs: Sizes = Field(
        default=(2, 4, 8, 16, 32, 64), description="Shares of the planes, for threads to take."
    )
    rows: Sizes = Field(
        default=(1, 2, 3, 4, 5, 7, 8), description="Neighbouring rows that are summed in registers."
    )
    lanes: Sizes = Field(default=(4, 8, 16, 32, 64), description="Neighbouring columns of them.")
    most_accumulators: PositiveInt = Field(
        default=512, description="Most results that are summed at once."
    )


class Streaming(FromOutside):
    """The first schedule of kernels that memory limits; see `compiler/rules/streaming.py` and `streaming_gpu.py`.

    `lanes` and `threads` are those of a processor.
    """

    kind: Literal["streaming"]
    lanes: PositiveInt = Field(
        default=64, description="Most neighbouring elements that are computed at once, as vectors."
    )
    worth: NonNegativeInt = Field(
        default=24, description="Number of trials of a search that this schedule replaces."
    )
    threads: bool = Field(default=True, description="Whether threads share the work.")


class RegisterProduct(ByThreads):
    """Matrix products on a CPU, in tiles of vector registers; see `compiler/rules/register_products.py`."""

    kind: Literal["register_product"]
    jobs: Sizes = Field(
        default=(1, 2, 4, 7, 8, 14, 16, 32),
        description="Shares of the tiles, for threads to take.",
    )
    stacks: Sizes = Field(
        default=(1, 2, 3, 4, 5, 7, 8, 11, 16),
        description="Neighbouring matrices of results, such as rows of an image, of which a tile has a part.",
    )
    rows: Sizes = Field(
        default=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16),
        description="Rows of each in a tile.",
    )
    lanes: Sizes = Field(
        default=(8, 16, 24, 32, 48, 64, 80, 96, 112, 128),
        description="Neighbouring columns of a tile, as vectors.",
    )
    steps: Sizes = Field(
        default=(1, 2, 3, 4, 7, 8),
        description="Steps of the reduction that are straight-line code.",
    )
    fewest_steps: PositiveInt = Field(
        default=48,
        description="Fewest steps of a part of the reduction, after which sums go to memory.",
    )
    fewest_accumulators: PositiveInt = Field(
        default=64, description="Fewest results of a tile: fewer leave no time to load operands."
    )
    most_accumulators: PositiveInt = Field(
        default=512, description="Most results of a tile: more fit no registers."
    )
    most_unrolled: PositiveInt = Field(
        default=2048, description="Most multiply-adds in straight-line code: more compiles slowly."
    )


class AttentionStrips(ByThreads):
    """Attention on a CPU, in strips of scores that stay in a cache; see `compiler/rules/attention_strips.py`."""

    kind: Literal["attention"]
    strips: Sizes = Field(
        default=(4, 8, 12, 16, 20, 24, 32, 48, 64),
        description="Neighbouring queries, or keys, whose scores with all others are in memory at once.",
    )
    rows: Sizes = Field(default=(1, 2, 4, 6, 8), description="Rows of a tile of registers.")
    lanes: Sizes = Field(
        default=(8, 16, 32, 64), description="Neighbouring columns of a tile, as vectors."
    )
    steps: Sizes = Field(
        default=(1, 2, 4, 8), description="Steps of the sums that are straight-line code."
    )
    most_accumulators: PositiveInt = Field(
        default=512, description="Most results of a tile: more fit no registers."
    )
    most_unrolled: PositiveInt = Field(
        default=2048, description="Most multiply-adds in straight-line code: more compiles slowly."
    )


Rule = Annotated[
    InlineConstants
    | AutoInline
    | AddRFactor
    | CrossThreadReduction
    | MultiLevelTiling
    | ParallelVectorizeUnroll
    | RandomComputeLocation
    | AutoBind
    | ImplicitGemm
    | Depthwise
    | FewChannels
    | ColumnReduction
    | VectorConcat
    | VectorRows
    | RegisterProduct
    | AttentionStrips
    | GroupAttention
    | Streaming,
    Field(discriminator="kind"),
]


class Mutations(FromOutside):
    """Relative chance of each way to change a schedule from one generation to the next."""

    tile_size: float = Field(default=0.9, ge=0)
    compute_location: float = Field(default=0.05, ge=0)
    unroll: float = Field(default=0.08, ge=0)
    parallel: float = Field(default=0.02, ge=0)
    thread_binding: float = Field(default=0.0, ge=0)


class Limits(FromOutside):
    """What a work-group may use on an OpenCL device, and what that has; every candidate is checked against it.

    It is read from the device. A file can make it narrower; the defaults are what any GPU has.
    """

    max_threads_per_block: PositiveInt = 256
    max_item_sizes: tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        default=(256, 256, 64), description="Most work-items of a work-group in each dimension."
    )
    max_local_memory_bytes: PositiveInt = 32768
    local_memory: Literal["local", "global"] = Field(
        default="local",
        description="`global` where local memory is ordinary memory, and staging data in it gains nothing.",
    )
    sub_group_size: PositiveInt = Field(
        default=1,
        description="Work-items that run in lockstep: products, windows and images of few channels are cut into "
        "work-groups of no fewer, products into multiples of them. Kernels with fewer work-items still run.",
    )
    vector_width: PositiveInt = Field(default=4, description="Native width of a float vector.")
    image2d_max: tuple[NonNegativeInt, NonNegativeInt] = Field(
        default=(0, 0), description="Largest width and height of an image; zeros without images."
    )
    image_buffer_max: NonNegativeInt = Field(
        default=0, description="Most texels of an image over a buffer; 0 without images."
    )
    fp16: bool = Field(default=False, description="Whether kernels may compute in half precision.")
    compute_units: PositiveInt = 1
    max_alloc_bytes: PositiveInt | None = Field(
        default=None, description="Largest buffer; no limit where it is not given."
    )

    def refused(self, group: Sequence[int], local_bytes: int, buffer_bytes: int = 0) -> str:
        """Returns the reason why the device cannot run a launch; an empty string if it can.

        Args:
            group: Work-items of a work-group in each dimension.
            local_bytes: Local memory of a work-group.
            buffer_bytes: Size of the largest buffer.
        """
        if math.prod(group) > self.max_threads_per_block:
            return (
                f"a work-group of {math.prod(group)} work-items, where the device has "
                f"{self.max_threads_per_block}"
            )
        if any(one > most for one, most in zip(group, self.max_item_sizes, strict=False)):
            most = self.max_item_sizes
            return f"a work-group of {tuple(group)} work-items, where the device has {most} at most"
        if local_bytes > self.max_local_memory_bytes:
            return (
                f"{local_bytes} bytes of local memory, where the device has "
                f"{self.max_local_memory_bytes}"
            )
        if self.max_alloc_bytes is not None and buffer_bytes > self.max_alloc_bytes:
            return f"a buffer of {buffer_bytes} bytes, where the device has {self.max_alloc_bytes} at most"
        return ""

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.max_item_sizes))
        image = "x".join(map(str, self.image2d_max))
        parts = (
            f"work-groups of {self.max_threads_per_block} ({sizes}) at most",
            f"sub-groups of {self.sub_group_size}" if self.sub_group_size > 1 else "",
            f"{self.max_local_memory_bytes / 1024:g} KiB of local memory"
            + (" (ordinary memory)" if self.local_memory == "global" else ""),
            f"float vectors of {self.vector_width}" if self.vector_width > 1 else "scalar floats",
            f"{self.compute_units} compute units" if self.compute_units > 1 else "",
            f"images of {image}" if any(self.image2d_max) else "",
            f"images of {self.image_buffer_max} texels over buffers"
            if self.image_buffer_max
            else "",
            "fp16 arithmetic" if self.fp16 else "no fp16 arithmetic",
        )
        return ", ".join(filter(None, parts))

    def within(self, other: Limits) -> Limits:
        """Returns the limits that satisfy both."""
        given = other.model_fields_set
        narrower = {
            "max_threads_per_block": min(self.max_threads_per_block, other.max_threads_per_block),
            "max_item_sizes": _least(self.max_item_sizes, other.max_item_sizes),
            "max_local_memory_bytes": min(
                self.max_local_memory_bytes, other.max_local_memory_bytes
            ),
            "local_memory": "global"
            if "global" in (self.local_memory, other.local_memory)
            else "local",
            "sub_group_size": max(self.sub_group_size, other.sub_group_size),
            "vector_width": min(self.vector_width, other.vector_width),
            "image2d_max": _least(self.image2d_max, other.image2d_max),
            "image_buffer_max": min(self.image_buffer_max, other.image_buffer_max),
            "fp16": self.fp16 and other.fp16,
            "compute_units": min(self.compute_units, other.compute_units),
            "max_alloc_bytes": min(
                filter(None, (self.max_alloc_bytes, other.max_alloc_bytes)), default=None
            ),
        }
        return self.model_copy(update={key: narrower[key] for key in narrower if key in given})


def _least(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(min, one, other))


class Compile(FromOutside):
    """How tuned kernels are compiled; untuned ones are compiled as TVM does by itself.

    The options are LLVM's, so they count on LLVM targets only.
    """

    llvm_unroll_threshold: PositiveInt | None = Field(
        default=None,
        strict=True,
        le=10_000,
        description="Largest body, in LLVM's cost units, that a loop may have after LLVM has unrolled it in full "
        "(`-unroll-threshold-aggressive`; LLVM's own is 300). Less compiles faster, and leaves unrolling to the "
        "schedule.",
    )
    llvm_slp_vectorizer: bool = Field(
        default=True,
        strict=True,
        description="Run LLVM's vectoriser of straight-line code. Schedules vectorise by themselves.",
    )
    llvm_loop_strength_reduction: bool = Field(
        default=True,
        strict=True,
        description="Run LLVM's loop strength reduction, which rewrites the addresses in loops.",
    )

    def llvm_options(self) -> list[str]:
        """Returns the options in the form of TVM's `cl-opt`."""
        options = []
        if self.llvm_unroll_threshold is not None:
            options.append(f"-unroll-threshold-aggressive:uint={self.llvm_unroll_threshold}")
        if not self.llvm_slp_vectorizer:
            options.append("-vectorize-slp:bool=0")
        if not self.llvm_loop_strength_reduction:
            options.append("-disable-lsr:bool=1")
        return options


class Search(FromOutside):
    """Sizes of the evolutionary search, tuned so that it takes little of a trial's time."""

    population: Times = Field(default=48, description="Schedules kept in a generation.")
    min_unmeasured: Times = Field(
        default=24, description="Fresh valid samples that every round starts from."
    )
    measured_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of a first generation that was measured before.",
    )
    generations: Times = 2
    mutation_probability: float = Field(default=0.85, ge=0, le=1)
    explore: float = Field(default=0.1, ge=0, le=1, description="Share of a round taken at random.")
    max_failed_batches: Times = Field(
        default=50, description="Batches of samples without a valid one before a space is given up."
    )
    trials_per_round: Times = 8
    warmup_trials: Times = Field(
        default=4, description="Trials each formulation of a convolution or matmul gets first."
    )
    warmup_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Trials of each formulation as a share of an equal share of all trials, where that is more.",
    )
    warmup_trials_memory_bound: Times = 2
    outlook: dict[str, PositiveFloat] = Field(
        default_factory=dict,
        description="By formulation: what its best time is multiplied with where formulations compete for trials. "
        "Less than 1 for one whose best falls further with more trials than that of others.",
    )
    serial_below_flops: NonNegativeInt = Field(
        default=0,
        description="Kernels with fewer operations than this run on one thread: starting more costs more.",
    )
    serial_below_bytes: NonNegativeInt = Field(
        default=0, description="The same for the bytes a kernel reads and writes; both must hold."
    )
    model_warmup: NonNegativeInt = Field(
        default=24, description="Measurements that the cost model needs before it is used."
    )


class Measure(FromOutside):
    """How one candidate is built and timed. Times in seconds unless the name says otherwise."""

    build_timeout_s: float = Field(default=30.0, gt=0)
    run_timeout_s: float = Field(default=20.0, gt=0, description="Limit for one candidate.")
    repeats: Times = 3
    min_repeat_ms: float = Field(default=4.0, ge=0)
    give_up_ratio: float = Field(
        default=4.0,
        gt=1,
        description="A candidate this many times slower than the best is timed only once.",
    )
    finalists: Times = Field(default=3, description="Best schedules of a task timed again.")
    final_blocks: Times = Field(
        default=11, description="Interleaved blocks of the final benchmark."
    )
    final_min_repeat_ms: float = Field(default=4.0, ge=0)
    tolerance: float = Field(
        default=1e-4,
        gt=0,
        le=LARGEST_TOLERANCE,
        description="Largest relative error of a right result, with a floor of 1e-3 of the largest magnitude.",
    )
    half_tolerance: float = Field(
        default=0.02,
        gt=0,
        le=LARGEST_TOLERANCE,
        description="The same of a kernel that keeps operands in half precision.",
    )
    pool: Times = Field(
        default=8,
        description="Best schedules of a task that the result keeps, for other cores and clocks.",
    )

    def allowed(self, *, half: bool) -> float:
        """Returns the largest relative error that counts as correct."""
        return max(self.tolerance, self.half_tolerance) if half else self.tolerance


class Space(FromOutside):
    """One search-space file."""

    schema_version: Literal[1]
    family: Literal["cpu", "opencl"]
    description: str
    layout: Literal["channels_first", "channels_last"] = Field(
        default="channels_first",
        description="Order of images and filters in memory, over a whole step.",
    )
    limits: Limits | None = Field(
        default=None,
        description="OpenCL: narrower limits than those of the device, or of any GPU without a device.",
    )
    compile: Compile = Compile()
    search: Search = Search()
    measure: Measure = Measure()
    mutations: Mutations = Mutations()
    rules: tuple[Rule, ...] = Field(min_length=1)
    formulations: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Formulations to choose from by `operator.role`; a role left out has them all.",
    )

    def preferred(self, fitting: Sequence[Formulation]) -> Sequence[Formulation]:
        """Returns the formulations to try, out of those that fit a kernel."""
        alone = {rule.kind for rule in self.rules if isinstance(rule, ByTiles) and rule.alone}
        return [one for one in fitting if one.rule in alone] or fitting

    @property
    def tolerance(self) -> float:
        """The largest relative error that counts as correct for any kernel of the space."""
        half = any(isinstance(rule, ImplicitGemm) and any(rule.half) for rule in self.rules)
        return self.measure.allowed(half=half)

    @property
    def streaming(self) -> Streaming | None:
        """The rule that makes the first schedule of kernels that memory limits; None without one."""
        return next((rule for rule in self.rules if isinstance(rule, Streaming)), None)

    def for_size(self, flops: int, size: int) -> Space:
        """Returns the space for a kernel: without threads if it is too small to share among them.

        Args:
            flops: The kernel's operations.
            size: Bytes that it reads and writes.
        """
        small = flops < self.search.serial_below_flops and size < self.search.serial_below_bytes
        return self.without_threads() if small else self

    def without_threads(self) -> Space:
        """Returns the same space without threads."""
        rules = tuple(map(_without_threads, self.rules))
        return self.model_copy(update={"rules": rules})

    def with_half_storage(self) -> Space:
        """Returns the same space, with kernels that may store operands in half precision.

        Raises:
            UsageError: No rule of the space can do so.
        """
        if not any(isinstance(rule, ImplicitGemm) for rule in self.rules):
            raise UsageError(
                f"the search space of {self.description} has no kernels with operands in half precision",
                hint="--precision fp16 goes with the targets opencl, adreno and mali",
            )
        rules = tuple(
            rule.model_copy(update={"half": (False, True)})
            if isinstance(rule, ImplicitGemm)
            else rule
            for rule in self.rules
        )
        return self.model_copy(update={"rules": rules})


def folder() -> Path:
    """Returns the folder of the shipped spaces: in the wheel, or at the root of a checkout."""
    packaged = Path(__file__).parents[2] / "_search_spaces"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "search_spaces"


def load(path: Path) -> Space:
    """Reads and validates a search-space file.

    Raises:
        UsageError: The file is missing, is not TOML, or breaks the schema; the message names the file,
            the key and the reason.
    """
    try:
        content = read_toml(path)
    except UsageError as error:
        shipped = sorted(one.name for one in folder().glob("*.toml"))
        raise UsageError(
            f"search space {error.message}",
            hint=f"{choices(path.name, shipped, 'give a TOML file; shipped are')}, in {folder()}",
        ) from None
    try:
        space = Space.model_validate(content)
    except ValidationError as error:
        key, what = complaint(error)
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(
            f"search space {path}: key {key or '(top level)'}: {what}{more}",
            hint="the schema is search_spaces/schema.json",
        ) from error
    if space.family == "opencl" and space.limits is None:
        space = space.model_copy(update={"limits": Limits()})
    own = [rule for rule in space.rules if isinstance(rule, ByTiles)]
    for rule in own:
        family = "cpu" if isinstance(rule, ByThreads) else "opencl"
        if space.family != family or [one.kind for one in own].count(rule.kind) > 1:
            raise UsageError(
                f"search space {path}: key rules: {rule.kind} is a rule of {family} spaces, and stands there once"
            )
    return space


def _without_threads(rule: Rule) -> Rule:
    if isinstance(rule, ParallelVectorizeUnroll):
        return rule.model_copy(update={"max_jobs_per_core": -1})
    if isinstance(rule, ByThreads | Streaming):
        return rule.model_copy(update={"threads": False})
    return rule


def schema_text() -> str:
    """Returns the JSON Schema of a search-space file, as shipped in `search_spaces/schema.json`."""
    return json.dumps(Space.model_json_schema(), indent=2, sort_keys=True) + "\n"
