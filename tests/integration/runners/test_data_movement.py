"""Which stages of a kernel only move data, and the program that is left of them."""

import numpy as np
import pytest
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.programs.data_movement import movement_stages, only_stages
from autotune.compiler.step.scratch_operands import (
    Workspace,
    held_bytes,
    with_scratch_operands,
    workspace,
)
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

CONV = "conv2d:n=1,c=4,h=8,w=8,k=6,r=3,s=3,stride=1,pad=1,channels_last=1"


@pytest.mark.parametrize(
    ("spec", "role", "formulation", "stages"),
    [
        (CONV, "forward", "direct", {"pad"}),
        (CONV, "forward", "guarded", set()),
        (CONV, "data_grad", "packed", {"dy_pad", "weight_rskc"}),
        (CONV + "+bias.forward:n=1,c=6,s=64,relu=1,channels_last=1", "forward", "direct", {"pad"}),
        ("matmul:m=4,n=8,k=16", "forward", "packed", {"weight_kn"}),
        ("add:size=8", "forward", "direct", set()),
        ("concat:n=1,c1=2,c2=3,s=4", "forward", "direct", None),
        ("concat:n=1,c1=2,c2=3,s=4", "data_grad", "direct", None),
        ("concat:n=1,c1=2,c2=3,s=4+dropout.forward:size=20", "forward", "direct", None),
    ],
)
def test_stages_that_only_copy(
    spec: str, role: str, formulation: str, stages: set[str] | None
) -> None:
    assert movement_stages(parse_kernel(spec, role), formulation) == stages


def test_what_is_left_moves_data_and_computes_nothing() -> None:
    kernel = parse_kernel(CONV, "forward")
    (direct,) = formulations(kernel, ["direct"])
    module = tvm.IRModule({"main": prim_func(kernel, direct)})
    part = only_stages(module, frozenset({"pad"}))
    assert "multiply" not in str(part) and "*" not in str(part["main"].body)
    output = np.full(kernel.outputs[0].shape, 7, np.float32)
    operands = [tvm.runtime.tensor(a) for a in (*random_inputs(kernel, 1), output)]
    tvm.compile(part, "llvm")["main"](*operands)
    assert (operands[-1].numpy() == 7).all()
    assert only_stages(module, frozenset({"gone"})) is None


def test_large_temporaries_become_operands_and_results_stay_right() -> None:
    kernel = parse_kernel(CONV + "+sgd.update:size=216", "weight_grad")
    (direct,) = formulations(kernel, ["direct"])
    function, specs = with_scratch_operands(prim_func(kernel, direct))
    assert {spec.name for spec in specs} == {"pad", "dweight"}
    assert workspace(function) == Workspace()
    inputs = random_inputs(kernel, 1)
    (expected,) = reference(kernel, inputs)
    scratch = [np.zeros(spec.shape, spec.dtype) for spec in specs]
    operands = [tvm.runtime.tensor(a) for a in (*inputs, np.zeros_like(inputs[2]), *scratch)]
    tvm.compile(tvm.IRModule({"main": function}), "llvm")["main"](*operands)
    assert max_relative_error(operands[len(inputs)].numpy(), expected) < 1e-4


def test_what_the_runtime_keeps_for_each_thread() -> None:
    kernels = [Workspace((100,), (40, 30)), Workspace((), (50,)), Workspace((20, 10, 5))]
    assert held_bytes(kernels, 1) == (100 + 40 + 30)
    assert held_bytes(kernels, 3) == (100 + 40 + 30) + 2 * (50 + 30)
    # Asked for first, 20 takes the block of 100, and 90 needs one of its own.
    assert held_bytes([Workspace((), (100,)), Workspace((), (90, 20))], 1) == 100 + 90
    assert held_bytes([], 2) == 0
