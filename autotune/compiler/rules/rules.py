"""Turns a search space (data) into TVM schedule rules, checks and mutators."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from autotune.compiler.formulations import Formulation, prim_func
from autotune.compiler.rules import tile_rules
from autotune.compiler.rules.attention_strips import AttentionStripsRule
from autotune.compiler.rules.column_reduction import ColumnReductionRule
from autotune.compiler.rules.concat import ConcatRule
from autotune.compiler.rules.depthwise import DepthwiseRule
from autotune.compiler.rules.few_channels import FewChannelLayers
from autotune.compiler.rules.group_attention import GroupAttentionRule
from autotune.compiler.rules.implicit_gemm import GpuProductsRule
from autotune.compiler.rules.register_products import RegisterProductsRule
from autotune.compiler.rules.vector_rows import VectorRowsRule
from autotune.compiler.target import spaces
from autotune.errors import ToolchainError
from autotune.workloads.operators import Kernel

LOGGER = logging.getLogger(__name__)
NO_SCHEDULE = "the search space makes no schedule of this size"


@contextmanager
def no_tensor_intrinsics() -> Iterator[None]:
    """Keeps `TuneContext` from importing `tvm.s_tir.tensor_intrin`.

    That module parses all CUDA, Hexagon and Arm intrinsics, which takes 20 to 60 seconds of processor time.
    None of our rules uses them.
    """
    name = "tvm.s_tir.tensor_intrin"
    import tvm.s_tir

    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    tvm.s_tir.tensor_intrin = sys.modules[name]
    try:
        yield
    finally:
        del sys.modules[name]
        del tvm.s_tir.tensor_intrin


def tile_rule(space: spaces.Space, kind: str) -> tile_rules.TileRule:
    """Returns the space's rule of a kind that schedules its own formulations."""
    (rule,) = (rule for rule in space.rules if rule.kind == kind)
    if isinstance(rule, spaces.ColumnReduction):
        return ColumnReductionRule(rule)
    if isinstance(rule, spaces.RegisterProduct):
        return RegisterProductsRule(rule)
    if isinstance(rule, spaces.AttentionStrips):
        return AttentionStripsRule(rule)
    if isinstance(rule, spaces.VectorConcat):
        return ConcatRule(rule)
    if isinstance(rule, spaces.VectorRows):
        return VectorRowsRule(rule)
    assert space.limits is not None
    if isinstance(rule, spaces.ImplicitGemm):
        return GpuProductsRule(rule, space.limits)
    if isinstance(rule, spaces.FewChannels):
        return FewChannelLayers(rule, space.limits)
    if isinstance(rule, spaces.GroupAttention):
        return GroupAttentionRule(rule, space.limits)
    assert isinstance(rule, spaces.Depthwise)
    return DepthwiseRule(rule, space.limits)


def cuts(space: spaces.Space, kernel: Kernel, formulation: Formulation) -> bool:
    """Returns whether a formulation has any schedule in the space; always True if it has no rule of its own.

    The first tile is scheduled, since TVM's primitives refuse some kernels that others follow.
    """
    import tvm

    if not formulation.rule:
        return True
    program = tvm.IRModule({"main": prim_func(kernel, formulation)})
    rule = tile_rule(space, formulation.rule)
    tile = next(tile_rules.tiles_of(rule, program, seed=1).drawn(1), None)
    if tile is None:
        return False
    try:
        tile_rules.Sketches(rule, program).schedule(tile)
    except Exception as error:  # TVM raises its first error.
        reason = str(error).strip().splitlines()[-1]
        LOGGER.warning("%s has no schedule by %s: %s", kernel.name, formulation.rule, reason)
        return False
    return True


def space_generator(space: spaces.Space, own: tile_rules.TileRule | None = None) -> Any:
    """Builds the `PostOrderApply` generator with the space's rules, checks and mutators.

    Args:
        space: The search space.
        own: The program's own rule. It then makes the schedules elsewhere, and here only checks them. None for the
            general rules of the space.
    """
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    if own is not None:
        return PostOrderApply(sch_rules=[], postprocs=[tile_rules.check(own)], mutator_probs={})
    own_ones = spaces.ByTiles | spaces.Streaming
    return PostOrderApply(
        sch_rules=[_rule(rule) for rule in space.rules if not isinstance(rule, own_ones)],
        postprocs=_checks(space),
        mutator_probs=_mutators(space),
    )


def design_spaces(program: Any, target: Any, space: spaces.Space) -> list[Any]:
    """Returns all sketches of a program, those of each variant of the space in turn.

    In TVM's tiling rule, caching may be optional for the result, but not for the operands. So a space in which
    operands `may` be cached is explored as two variants, unless local memory is ordinary memory.

    Args:
        program: The unscheduled program.
        target: The TVM target.
        space: The search space.

    Raises:
        ToolchainError: The space makes no schedule.
    """
    from tvm.s_tir.meta_schedule import TuneContext

    sketches: list[Any] = []
    for variant in _variants(space):
        for attempt in _fallbacks(variant):
            with no_tensor_intrinsics():
                context = TuneContext(
                    program, target=target, space_generator=space_generator(attempt), num_threads=1
                )
            try:
                sketches += context.generate_design_space()
            except Exception as error:
                failure = error
                continue
            break
        else:
            raise ToolchainError(
                f"the search space makes no schedule: {str(failure).strip().splitlines()[-1]}"
            )
    if not sketches:
        raise ToolchainError(NO_SCHEDULE)
    return sketches


def _fallbacks(space: spaces.Space) -> list[spaces.Space]:
    """Returns the space, and the same space without the rules that make TVM fail on some programs.

    TVM's cross-thread reduction moves a producer into its consumer without checking whether the producer is an
    output of the program. The maximum of a pooling kernel is such an output.
    """
    safe = tuple(r for r in space.rules if not isinstance(r, spaces.CrossThreadReduction))
    return [space] if safe == space.rules else [space, space.model_copy(update={"rules": safe})]


def _variants(space: spaces.Space) -> list[spaces.Space]:
    for index, rule in enumerate(space.rules):
        if not isinstance(rule, spaces.MultiLevelTiling):
            continue
        reuse = rule.reuse_read
        if reuse is None:
            continue
        plain = space.limits is not None and space.limits.local_memory == "global"
        choices: list[spaces.Reuse | None] = []
        copied = plain and reuse.scope == "shared"  # It would only be copied.
        if reuse.required == "may" or copied:
            choices.append(None)
        if not copied:
            choices.append(reuse.model_copy(update={"required": "must"}))
        return [
            _with_rule(space, index, rule.model_copy(update={"reuse_read": c})) for c in choices
        ]
    return [space]


def _with_rule(space: spaces.Space, index: int, rule: spaces.Rule) -> spaces.Space:
    rules = (*space.rules[:index], rule, *space.rules[index + 1 :])
    return space.model_copy(update={"rules": rules})


def _rule(rule: spaces.Rule) -> Any:
    from tvm.s_tir.meta_schedule import schedule_rule as rules

    match rule:
        case spaces.InlineConstants():
            return rules.InlineConstantScalars()
        case spaces.AutoInline():
            return rules.AutoInline(
                into_producer=rule.into_producer,
                into_consumer=rule.into_consumer,
                inline_const_tensor=rule.inline_constant_tensor,
                disallow_if_then_else=not rule.allow_if_then_else,
                require_injective=True,
                require_ordered=rule.require_ordered,
                disallow_op=list(rule.keep),
            )
        case spaces.AddRFactor():
            return rules.AddRFactor(rule.max_jobs_per_core, rule.max_innermost_factor)
        case spaces.CrossThreadReduction():
            return rules.CrossThreadReduction(list(rule.thread_extents))
        case spaces.MultiLevelTiling():
            return rules.MultiLevelTiling(
                rule.structure,
                list(rule.thread_axes) or None,
                rule.max_innermost_factor,
                list(rule.vector_loads) or None,
                _reuse(rule.reuse_read),
                _reuse(rule.reuse_write),
            )
        case spaces.ParallelVectorizeUnroll():
            return rules.ParallelizeVectorizeUnroll(
                rule.max_jobs_per_core,
                rule.max_vectorize_extent,
                list(rule.unroll_steps),
                rule.explicit_unroll,
            )
        case spaces.RandomComputeLocation():
            return rules.RandomComputeLocation()
        case spaces.AutoBind():
            return rules.AutoBind(rule.max_blocks, list(rule.thread_extents))
    raise AssertionError(f"{rule.kind} cannot be combined with other rules")


def _reuse(reuse: spaces.Reuse | None) -> Any:
    from tvm.s_tir.meta_schedule.schedule_rule import ReuseType

    if reuse is None:
        return None
    return ReuseType(req=reuse.required, levels=list(reuse.levels), scope=reuse.scope)


def _checks(space: spaces.Space) -> list[Any]:
    from tvm.s_tir.meta_schedule import postproc

    if space.family == "cpu":
        return [
            postproc.DisallowDynamicLoop(),
            postproc.RewriteParallelVectorizeUnroll(),
            postproc.RewriteReductionBlock(),
        ]
    return [
        postproc.DisallowDynamicLoop(),
        postproc.RewriteCooperativeFetch(),
        postproc.RewriteUnboundBlock(),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
        postproc.VerifyGPUCode(),
    ]


def _mutators(space: spaces.Space) -> dict[Any, float]:
    from tvm.s_tir.meta_schedule import mutator

    jobs = max(
        (r.max_jobs_per_core for r in space.rules if isinstance(r, spaces.ParallelVectorizeUnroll)),
        default=-1,
    )
    unrolls = max(
        (len(r.unroll_steps) for r in space.rules if isinstance(r, spaces.ParallelVectorizeUnroll)),
        default=0,
    )
    chances = space.mutations
    pairs = [
        (mutator.MutateTileSize(), chances.tile_size),
        (mutator.MutateComputeLocation(), chances.compute_location),
        (mutator.MutateUnroll(), chances.unroll if unrolls > 1 else 0.0),
        (mutator.MutateParallel(jobs), chances.parallel if jobs > 0 else 0.0),
        (mutator.MutateThreadBinding(), chances.thread_binding),
    ]
    return {kind: chance for kind, chance in pairs if chance > 0}
