"""A step between two places: the same calls in another layout, and the tensors that go to and fro."""

from __future__ import annotations

import numpy as np
import pytest
from steps import early_update, net

from autotune.measurement.step_runner import CrossingSeconds, MemoryKind, OpenClDevice
from autotune.studies.joint.placing import GpuForm, GpuKernel, Placing, gpu_form
from autotune.workloads import StepForm, StepGraph, formed
from autotune.workloads.crossing import counterparts, reordered, traffic


@pytest.fixture(scope="module")
def forms() -> tuple[StepGraph, StepGraph]:
    plain = net(4, norm=True, optimizer="momentum")
    return formed(plain, StepForm("channels_last")), formed(plain, StepForm())


def test_calls_of_another_layout_make_the_same_tensors(forms: tuple[StepGraph, StepGraph]) -> None:
    last, first = forms
    found = counterparts(last, first)
    assert len(found) > len(last.nodes) // 2
    for call, node in found.items():
        assert last.nodes[call].kernel.role == node.kernel.role
        assert last.nodes[call].outputs == node.outputs
    assert counterparts(last, last) == dict(enumerate(last.nodes))


def test_a_reordered_tensor_has_the_values_of_the_other_layout(
    forms: tuple[StepGraph, StepGraph],
) -> None:
    last, first = forms
    changed = 0
    for tensor in last.tensors:
        other = first.by_name.get(tensor.name)
        if other is None or tensor.dtype != "float32":
            continue
        order = reordered(tensor, other)
        drawn = np.random.default_rng(1).standard_normal(
            tensor.layout.shape if tensor.layout else tensor.shape
        )
        stored, wanted = tensor.stored(drawn).reshape(-1), other.stored(drawn).reshape(-1)
        if order is None:
            assert (stored == wanted).all()
            continue
        changed += 1
        assert (stored.reshape(order.shape).transpose(order.axes).reshape(-1) == wanted).all()
    assert changed > 10


@pytest.mark.parametrize("graph", [net(4, norm=True, optimizer="adam"), early_update()])
def test_every_tensor_that_calls_share_is_there_once(graph: StepGraph) -> None:
    found = {one.tensor: one for one in traffic(graph)}
    assert found[graph.loss].readers[-1] is None
    for tensor in graph.tensors:
        if tensor.kind == "input":
            assert found[tensor.name].producer is None
        if tensor.kind in ("parameter", "state"):
            # The step before has written it.
            writer = found[tensor.name].producer
            assert writer is not None
            assert graph.updates[tensor.name] in graph.nodes[writer].outputs
        assert tensor.kind != "updated" or tensor.name not in found
    reads = {name for node in graph.nodes for name in node.inputs}
    constants = {tensor.name for tensor in graph.tensors if tensor.kind == "constant"}
    later = {new for node in graph.nodes for _, new in node.replaced}
    assert set(found) == (reads - constants - later) | {graph.loss}


def form(seconds: list[float], crossing: float = 0.0, memory: MemoryKind | None = None) -> GpuForm:
    graph = formed(net(4), StepForm())
    kernels = {
        call: GpuKernel(f"k{call}", "x", "direct", s) for call, s in enumerate(seconds) if s >= 0
    }
    kinds = {tensor.bytes: number for number, tensor in enumerate(graph.tensors)}
    costs = {number: CrossingSeconds(crossing, crossing, 0, 0) for number in kinds.values()}
    dear = {number: CrossingSeconds(1, 1, 1, 1) for number in kinds.values()}
    return gpu_form(graph, kernels, {}, {"copy": dear, "map": costs}, memory)


CALLS = len(formed(net(4), StepForm()).nodes)
GPU = OpenClDevice("a GPU, 1.0", gpu=True)


def test_the_memory_that_costs_less_is_taken() -> None:
    found = form([1.0] * CALLS, 0.5)
    assert found.memory == "map"
    assert {c.to_gpu for c in found.crossings} == {0.5}
    assert sum(one.tensors for one in found.crossed) == len(found.crossings)


def test_the_memory_that_the_user_names_is_taken() -> None:
    found = form([1.0] * CALLS, 0.5, "copy")
    assert found.memory == "copy"
    assert {c.to_gpu for c in found.crossings} == {2.0}


def placing(seconds: list[float], crossing: float = 0.0) -> Placing:
    own = form(seconds, crossing)
    return Placing([own], [list(range(CALLS))], GPU)


def test_each_call_is_made_where_it_is_best() -> None:
    cpu = np.ones(CALLS)
    fast = [0.5 if call % 2 else 2.0 for call in range(CALLS)]
    calls, cost = placing(fast).chosen(0, cpu, 1.0, 0.0, 1.0)
    assert calls == tuple(range(1, CALLS, 2))
    assert cost == pytest.approx(sum(min(1.0, s) for s in fast))
    # Where it costs more to go there than is won, nothing does.
    assert placing(fast, crossing=5.0).chosen(0, cpu, 1.0, 0.0, 1.0)[0] == ()
    # Where all of it is won, everything does, but for what the GPU has no kernel of.
    some = [0.1] * (CALLS - 1) + [-1.0]
    assert placing(some, 1e-6).chosen(0, cpu, 1.0, 0.0, 1.0)[0] == tuple(range(CALLS - 1))


def test_what_steps_tell_of_the_gpu_counts_more_than_its_runs() -> None:
    found = placing([0.5] * CALLS)
    assert found.chosen(0, np.ones(CALLS), 1.0, 0.0, 1.0)[0] == tuple(range(CALLS))
    found.learn(0, [[call, 3.0] for call in range(4)], None, None)
    # Those that were not measured are thought to be as much slower as the others.
    assert found.seconds(0) == pytest.approx([3.0] * CALLS)
    assert found.chosen(0, np.ones(CALLS), 1.0, 0.0, 1.0)[0] == ()


def test_joules_of_the_gpu_are_what_the_step_drew_beyond_its_cpu_calls() -> None:
    found = placing([0.5] * CALLS)
    assert found.watts is None
    found.learn(0, [[0, 0.5], [1, 0.5]], 7.0, 5.0)
    assert found.watts == pytest.approx(2.0)
    frugal = found.chosen(0, np.full(CALLS, 1.5), 0.0, 1.0, 9.0)[0]
    assert frugal == tuple(range(CALLS))
    assert found.chosen(0, np.full(CALLS, 0.5), 0.0, 1.0, 9.0)[0] == ()


def test_once_a_place_is_settled_nothing_is_elsewhere() -> None:
    found = placing([0.5 if call % 2 else 2.0 for call in range(CALLS - 1)] + [-1.0])
    found.only = "cpu"
    assert found.chosen(0, np.ones(CALLS), 1.0, 0.0, 1.0) == ((), pytest.approx(CALLS))
    found.only = "gpu"
    assert found.chosen(0, np.ones(CALLS), 1.0, 0.0, 1.0)[0] == tuple(range(CALLS - 1))
