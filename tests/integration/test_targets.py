"""Target files become TVM targets, with the space and the runner that fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.compiler.spaces import load
from autotune.compiler.targets import TARGETS, from_json, tvm_target
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


def test_limits_of_the_file_win_over_those_of_the_space(tmp_path: Path) -> None:
    spec = from_json(written(tmp_path, {"kind": "opencl", "max_threads_per_block": 96}))
    target = tvm_target(spec, load(spec.space_path()).limits)
    assert int(target.attrs["max_threads_per_block"]) == 96


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("qcom/nothing", "no target tag"),
        ({"kind": "opencl", "max_threads": 1}, "TVM refuses"),
        ({"kind": "llvm", "mcpu": "nonsense"}, "no processor 'nonsense'"),
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
