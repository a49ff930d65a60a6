"""Forms of a step: other layouts, fused, in micro-batches, with activations computed again: the same results."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from steps import early_update, net

from autotune.errors import UsageError
from autotune.workloads import (
    StepBuilder,
    StepForm,
    StepGraph,
    TrainingStep,
    Value,
    build_model,
    evaluate,
    formed,
    given_values,
    initial_values,
    max_relative_error,
)
from autotune.workloads.memory import ALIGNMENT, plan_memory, replaced_in_place

Arrays = dict[str, NDArray[Any]]


def run(graph: StepGraph, batch: int) -> Arrays:
    """Loss and updated tensors of one step, as the model defines them."""
    generator = np.random.default_rng(0)
    images = generator.normal(size=(batch, 3, 9, 8)).astype(np.float32)
    labels = generator.integers(0, 3, batch).astype(np.int32)
    values = initial_values(graph, 5) | given_values(graph, images, labels, 5, 0)
    wanted = graph.updates
    found = evaluate(graph, values, [*wanted.values(), graph.loss])
    results = {old: graph.by_name[new].restored(found[new]) for old, new in wanted.items()}
    return results | {"loss": found[graph.loss]}


def assert_same(a: Arrays, b: Arrays) -> None:
    assert set(a) == set(b)
    for name in a:
        assert a[name].shape == b[name].shape, name
        assert max_relative_error(b[name], a[name]) < 1e-9, name


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize(("parts", "segments"), [(1, 0), (1, 3), (2, 0), (4, 2)])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_every_form_of_a_step_computes_the_same(
    layout: Any, parts: int, segments: int, optimizer: str
) -> None:
    whole = run(net(4, optimizer=optimizer), 4)
    graph = formed(net(4 // parts, optimizer=optimizer), StepForm(layout, parts, segments))
    assert graph.batch == 4
    assert_same(whole, run(graph, 4))


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_batch_norm_survives_layout_fusion_and_recomputation(layout: Any) -> None:
    graph = formed(net(4, norm=True), StepForm(layout, 1, 3))
    assert_same(run(net(4, norm=True), 4), run(graph, 4))


def test_masks_are_fresh_in_each_step_and_the_same_for_the_same_seed() -> None:
    graph, images, labels = net(4), np.zeros((4, 3, 9, 8), np.float32), np.zeros(4, np.int32)
    masks = {
        (seed, step): given_values(graph, images, labels, seed, step)["dropout.mask"].tobytes()
        for seed in (1, 2)
        for step in (0, 1, 2)
    }
    assert len(set(masks.values())) == 6
    again = given_values(graph, images, labels, 2, 1)["dropout.mask"].tobytes()
    assert masks[2, 1] == again


def test_running_statistics_are_updated_by_each_micro_batch_in_turn() -> None:
    whole = formed(net(2, norm=True), StepForm("channels_last", 2))
    parts = run(whole, 4)
    generator = np.random.default_rng(0)
    images = generator.normal(size=(4, 3, 9, 8)).astype(np.float32)
    small = net(2, norm=True)
    values = initial_values(small, 5)
    for start in (0, 2):
        values["input"] = images[start : start + 2]
        found = evaluate(small, values, [*small.updates.values()])
        for name in ("stem.norm.running_mean", "stem.norm.running_var"):
            values[name] = found[small.updates[name]]
    for name in ("stem.norm.running_mean", "stem.norm.running_var"):
        assert max_relative_error(parts[name], values[name]) < 1e-9


def seen_otherwise(name: str) -> StepGraph:
    """Steps in which a kernel sees an image in another shape, so that its channels cannot simply come last."""
    b = StepBuilder(name, 2, (3, 6, 6))
    x = b.conv("conv", b.input, 4, 3, pad=1, relu=True)
    flat = b.flatten(x)
    match name:
        case "norm of features":
            x = b.batch_norm("norm", flat, relu=True)
        case "sum with features":
            x = b.relu("relu", b.add("sum", flat, b.linear("inner", flat, 144)))
        case "features as an image":
            y = b.linear("inner", flat, 144)
            x = b.flatten(b.conv("late", Value(y.name, (2, 4, 6, 6), True), 3, 3, relu=True))
        case "image cut otherwise":
            x = b.flatten(b.max_pool("pool", Value(x.name, (2, 8, 3, 6), True), 2, stride=1))
        case "features with a bias by channel":
            y = b.linear("inner", flat, 144, bias=False)
            x = b.flatten(b.batch_norm("norm", Value(y.name, (2, 4, 6, 6), True), relu=True))
        case "shared filters":
            y = b.conv("twice", x, 4, 3, pad=1, weight="shared", bias=False)
            x = b.flatten(b.conv("again", y, 4, 3, pad=1, weight="shared", bias=False))
    return b.finish(b.linear("head", x, 3))


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("norm of features", False),
        ("sum with features", False),
        ("features as an image", False),
        ("image cut otherwise", False),
        ("features with a bias by channel", False),
        ("shared filters", True),
    ],
)
def test_a_step_stays_right_where_images_are_seen_in_other_shapes(
    name: str, last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plain = seen_otherwise(name)
    graph = formed(plain, StepForm("channels_last"))
    assert any(tensor.layout for tensor in graph.tensors) == last
    assert ("another shape" in caplog.text) != last
    generator = np.random.default_rng(0)
    images = generator.normal(size=(2, 3, 6, 6)).astype(np.float32)
    labels = generator.integers(0, 3, 2).astype(np.int32)
    found = []
    for one in (plain, graph):
        values = initial_values(one, 5) | given_values(one, images, labels, 5, 0)
        results = evaluate(one, values, [one.loss, *one.updates.values()])
        found.append(
            {old: one.by_name[new].restored(results[new]) for old, new in one.updates.items()}
            | {"loss": results[one.loss]}
        )
    assert_same(*found)


def test_fusion_leaves_no_stored_gradient_of_a_parameter() -> None:
    graph = formed(build_model("lenet", 2), StepForm("channels_last"))
    stored = {t.name for t in graph.tensors if t.kind == "gradient"}
    assert not stored & {f"{t.name}.grad" for t in graph.parameters}
    names = [node.kernel.name for node in graph.nodes]
    assert len(names) == 25
    assert any("weight_grad" in name and name.endswith("sgd_update_size2400") for name in names)


def test_a_fused_update_comes_after_the_last_reader_of_the_old_value() -> None:
    graph = formed(build_model("squeezenet1_1", 1), StepForm("channels_last"))
    last_read = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
    for at, node in enumerate(graph.nodes):
        for old, _ in node.replaced:
            assert last_read[old] == at
    assert set(replaced_in_place(graph).values()) == {t.name for t in graph.parameters}


def test_the_first_values_of_parameters_do_not_depend_on_the_form() -> None:
    plain = initial_values(net(4), 3)
    graph = formed(net(2), StepForm("channels_last", 2, 2))
    other = initial_values(graph, 3)
    for tensor in graph.parameters:
        assert np.array_equal(tensor.restored(other[tensor.name]), plain[tensor.name])


@pytest.mark.parametrize("model", ["lenet", "squeezenet1_1", "mobilenet_v2"])
@pytest.mark.parametrize("form", [StepForm(), StepForm("channels_last", 2, 4)])
def test_no_two_tensors_that_live_at_once_share_memory(model: str, form: StepForm) -> None:
    graph = TrainingStep(model, 4).graph(form)
    scratch = {graph.nodes[3].kernel.name: (1000, 64), graph.nodes[-1].kernel.name: (5000,)}
    plan = plan_memory(graph, scratch)
    assert plan.bound_bytes <= plan.arena_bytes <= 1.1 * plan.bound_bytes
    written = {name: at for at, node in enumerate(graph.nodes) for name in node.outputs}
    read = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
    in_place, end = replaced_in_place(graph), len(graph.nodes)
    blocks = []
    for tensor in graph.tensors:
        lasting = tensor.kind in ("parameter", "state", "constant", "updated")
        lasting = lasting or tensor.name == graph.loss
        if tensor.name in in_place:
            old = in_place[tensor.name]
            assert plan.offsets[tensor.name] == plan.offsets[old]
            continue
        first = written.get(tensor.name, -1)
        last = end if lasting else max(first, read.get(tensor.name, first))
        blocks.append((plan.offsets[tensor.name], tensor.bytes, first, last))
    for at, node in enumerate(graph.nodes):
        for number, size in enumerate(scratch.get(node.kernel.name, ())):
            blocks.append((plan.scratch[at, number], size, at, at))
    offsets = np.array(blocks)
    assert (offsets[:, 0] % ALIGNMENT == 0).all()
    assert (offsets[:, 0] + offsets[:, 1]).max() <= plan.arena_bytes
    for offset, size, first, last in blocks:
        alive = (offsets[:, 2] <= last) & (first <= offsets[:, 3])
        meets = (offsets[:, 0] < offset + size) & (offset < offsets[:, 0] + offsets[:, 1])
        assert (alive & meets).sum() == 1  # itself


@pytest.mark.slow
def test_recomputation_and_micro_batches_need_less_memory() -> None:
    wanted = TrainingStep("mobilenet_v2", 4)
    sizes = {
        (form.micro_batches, form.segments): plan_memory(graph).arena_bytes
        for form, graph in wanted.forms("channels_last")
    }
    assert sizes[1, 4] < 0.5 * sizes[1, 0]
    assert sizes[4, 4] < sizes[2, 4] < sizes[1, 4]


def test_more_segments_than_there_are_places_to_cut_change_nothing() -> None:
    plain = build_model("lenet", 2)
    many = formed(plain, StepForm("channels_last", 1, 10**9))
    assert many.nodes == formed(plain, StepForm("channels_last", 1, 1000)).nodes


def test_an_update_that_cannot_be_done_in_place_gets_memory_of_its_own() -> None:
    plan = plan_memory(early_update())
    assert plan.offsets["fc3.weight"] != plan.offsets["fc3.weight.updated"]
    assert plan.offsets["fc3.bias"] == plan.offsets["fc3.bias.updated"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TrainingStep("lenet", 4).plain(3), "no 3 equal parts"),
        (lambda: TrainingStep("lenet", 0).plain(), "batch of 0"),
        (lambda: TrainingStep("resnet", 4).plain(), "unknown model"),
        (
            lambda: TrainingStep("lenet", 4, input_shape=(1, 28, 28)).plain(),
            "defines its own input",
        ),
        (lambda: formed(net(2), StepForm("channels_first", 0)), "make no step"),
        (lambda: formed(net(2), StepForm("channels_first", 1, -1)), "make no step"),
    ],
)
def test_impossible_steps_are_refused(make: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make()
