"""Target files become TVM targets, with the space and the runner that fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.compiler.runners.builder import target_text
from autotune.compiler.runners.device_limits import with_device_limits
from autotune.compiler.runners.runner import DeviceFingerprint
from autotune.compiler.target.request import TuneRequest
from autotune.compiler.target.spaces import Compile, load
from autotune.compiler.target.targets import TARGETS, find, from_json, tvm_target
from autotune.errors import UsageError


def written(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "space_file", "triple"),
    [
        ({"kind": "opencl", "device": "mali", "max_threads_per_block": 128}, "mali.toml", ""),
        ({"kind": "opencl"}, "opencl_gpu.toml", ""),
        ({"kind": "llvm"}, "host_cpu.toml", ""),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, "arm_cpu.toml", "aarch64-linux-gnu"),
        (
            {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "cortex-a76"},
            "arm_cpu.toml",
            "aarch64-linux-gnu",
        ),
        ("qcom/adreno-opencl", "adreno.toml", ""),
        ({"tag": "raspberry-pi/4b-aarch64"}, "arm_cpu.toml", "aarch64-linux-gnu"),
    ],
)
def test_a_target_file_takes_the_space_that_fits(
    tmp_path: Path, content: Any, space_file: str, triple: str
) -> None:
    spec = from_json(written(tmp_path, content))
    assert (spec.name, spec.space_file, spec.triple) == ("mine", space_file, triple)
    target = tvm_target(spec, load(spec.space_path()).limits)
    if spec.family == "cpu":
        assert int(target.attrs["num-cores"]) >= 1


def test_compiler_options_of_a_space_reach_llvm_and_only_tuned_kernels(tmp_path: Path) -> None:
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8, 64), "float32"), y: T.Buffer((8,), "float32")) -> None:
        for i, k in T.grid(8, 64):
            with T.sblock("y"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    y[v_i] = T.float32(0)
                y[v_i] = y[v_i] + x[v_i, v_k]

    spec = find("cpu")
    sizes = {}
    for name, options in (("untuned", None), ("tuned", Compile(llvm_unroll_threshold=1))):
        library = tmp_path / f"{name}.o"
        tvm.compile(
            tvm.IRModule({"main": main}), tvm_target(spec, None, options)
        ).mod.write_to_file(str(library), "o")
        sizes[name] = library.stat().st_size
    assert sizes["tuned"] < 0.8 * sizes["untuned"]
    assert "cl-opt" not in target_text(tvm_target(spec, None))


def test_limits_of_the_file_win_over_those_of_the_space(tmp_path: Path) -> None:
    spec = from_json(written(tmp_path, {"kind": "opencl", "max_threads_per_block": 96}))
    target = tvm_target(spec, load(spec.space_path()).limits)
    assert int(target.attrs["max_threads_per_block"]) == 96


@pytest.mark.parametrize("name", ["max_threads_per_block", "max_num_threads"])
def test_the_work_group_of_a_file_narrows_the_limits_by_either_name(
    tmp_path: Path, name: str
) -> None:
    spec = from_json(written(tmp_path, {"kind": "opencl", name: 8}))
    space = load(spec.space_path())
    request = TuneRequest(spec, space, "", None, (), 1, 1)
    limits = with_device_limits(
        request, DeviceFingerprint("none", "opencl", "", (), stand_in=False)
    ).space.limits
    assert limits is not None
    assert limits.max_threads_per_block == 8


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("qcom/nothing", "no target tag"),
        ({"kind": "opencl", "max_threads": 1}, "key max_threads is none"),
        ({"kind": "llvm", "mcpu": "nonsense"}, "no processor 'nonsense'"),
        ({"kind": "llvm", "mattr": ["+nonsense"]}, r"no feature '\+nonsense'"),
        (
            {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+dotprod", "-avx2"]},
            "no feature '-avx2'",
        ),
        ({"kind": "opencl", "max_threads_per_block": 0}, "key max_threads_per_block is 0"),
        ({"kind": "opencl", "max_num_threads": 0}, "key max_num_threads is 0"),
        ({"kind": "opencl", "thread_warp_size": 0}, "key thread_warp_size is 0"),
        (
            {"kind": "llvm", "num-cores": 0},
            "key num-cores is 0, and a whole number from 1 to 4096 is wanted",
        ),
        (
            {"kind": "llvm", "num-cores": 2147483647},
            "key num-cores is 2147483647",
        ),
        (
            {"kind": "opencl", "max_shared_memory_per_block": -3},
            "key max_shared_memory_per_block is -3",
        ),
        ({"kind": "llvm", "cl-opt": ["-vectorize-slp:bool=0"]}, "key cl-opt"),
    ],
)
def test_what_tvm_does_not_know_is_refused_in_one_line(
    tmp_path: Path, content: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        from_json(written(tmp_path, content))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_named_target_is_one_that_tvm_takes(target: Any) -> None:
    limits = load(target.space_path()).limits
    made = tvm_target(target, limits)
    assert str(made.kind.name) == dict(target.tvm)["kind"]
    if limits is not None:
        assert int(made.attrs["max_threads_per_block"]) == limits.max_threads_per_block
