"""The command that a result of records leads to: it tunes the same kernels, where they were measured."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.options.next_words import tuning_words
from autotune.jobs.requests import allow, model_code
from autotune.records.database import About, Database, Form, Identity, SearchedTask, Source

KERNEL = SearchedTask("matmul:m=8,n=8,k=8", "forward", 1, 0.5, 9, ())


def source(
    name: str, kind: str = "cpu", target: str = "cpu", cores: str = "all, 2 threads", **about: Any
) -> Source:
    device = "emulated meizu-16t" if kind == "model" else "a device"
    identity = Identity(device, kind, "", "0.27.0", target, stand_in=False)
    return Source(
        name, identity, cores, About(**{"run": name, "began": 0.0, **about}), 9, {"a": KERNEL}
    )


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def words(*sources: Source, measured: Sequence[Path] = ()) -> str:
    return shlex.join(map(str, tuning_words(Database.of(sources, []), Path("there"), measured)))


def own_run(folder: Path, **about: Any) -> Path:
    """A run of a model of one's own."""
    folder.mkdir(parents=True)
    step = {"model": "net.py:make", "batch": 2, "optimizer": "adam", "train": ["head.*"]}
    written = {"schema_version": 1, "request": {"kind": "kernels"}, "step": step, **about}
    (folder / "run.json").write_text(json.dumps(written))
    return folder


FORM = Form(classes=7, optimizer="adam", micro_batch=1)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"workload": "lenet", "batch": 2}, "--model lenet --batch 2"),
        (
            {"workload": "lenet", "batch": 2, "step": FORM},
            "--model lenet --batch 2 --classes 7 --optimizer adam --micro-batch 1",
        ),
        # The model has no name here: one of its kernels is meant.
        (
            {"workload": "Net", "batch": 2, "step": Form(input_shape="3x32x32")},
            "--op matmul:m=8,n=8,k=8 --role forward",
        ),
        ({"workload": "matmul", "batch": None}, "--op matmul:m=8,n=8,k=8 --role forward"),
        (
            {"workload": "lenet", "batch": 2, "kind": "model", "cores": "big, 4 threads"},
            "--model lenet --batch 2 --emulate meizu-16t --cluster big",
        ),
        (
            {"workload": "lenet", "batch": 2, "target": "cpu aarch64-linux-gnu"},
            "--model lenet --batch 2 --target arm-cpu",
        ),
        # From elsewhere: nothing that changes the terminal, and no code.
        (
            {"workload": "net.py:make", "batch": 2, "step": Form(optimizer="\x1b[2J")},
            "--op matmul:m=8,n=8,k=8 --role forward --",
        ),
    ],
)
def test_the_command_tunes_what_the_records_have(reported: dict[str, Any], expected: str) -> None:
    assert words(source("one", **reported)).startswith(f"kernels {expected}")
    assert words(source("one", **reported)).endswith(" --records there")


def test_the_newest_run_of_a_model_that_has_a_name_is_meant() -> None:
    old = source("old", workload="lenet", batch=2, began=1.0)
    new = source("new", workload="lenet", batch=8, began=2.0)
    other = source("other", workload="Net", batch=16, began=3.0)
    assert words(new, old, other) == "kernels --model lenet --batch 8 --records there"
    assert words(other) == "kernels --op matmul:m=8,n=8,k=8 --role forward --records there"
    assert words() == "kernels --model lenet --records there"


def test_a_model_of_one_s_own_is_named_as_its_run_names_it(tmp_path: Path) -> None:
    run = own_run(tmp_path / "logs" / "mine")
    (tmp_path / "net.py").write_text("")
    mine = source("mine", workload="make", batch=2)
    one_kernel = "kernels --op matmul:m=8,n=8,k=8 --role forward --records there"
    # Typing the name of code allows it, so that only code that is allowed is named.
    assert words(mine, measured=[run]) == one_kernel
    allow([model_code("net.py:make")])
    named = (
        "kernels --model net.py:make --batch 2 --optimizer adam --train 'head.*' --records there"
    )
    for place in (run, run.parent):
        assert words(mine, measured=[place]) == named
    assert words(mine) == words(source("other", workload="make", batch=2), measured=[run])
    (tmp_path / "net.py").unlink()
    assert words(mine, measured=[run]) == one_kernel


def test_a_model_whose_file_is_elsewhere_is_named_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = own_run(tmp_path / "project" / "logs" / "mine")
    net = tmp_path / "project" / "net.py"
    net.write_text("")
    allow([model_code(f"{net}:make")])
    assert f"--model {net}:make " in words(source("mine", workload="make", batch=2), measured=[run])


def test_a_tracker_is_named_only_where_it_is_known(tmp_path: Path) -> None:
    reported = {"workload": "lenet", "batch": 2, "kind": "rpc-opencl", "target": "opencl"}
    fleet = {"tracker": "127.0.0.1:9190", "key": "adreno640"}
    run = own_run(tmp_path / "mine", request={"kind": "kernels", "fleet": fleet})
    assert words(source("mine", **reported)) == "devices"
    assert words(source("mine", **reported), measured=[run]) == "devices"
    allow(["tracker 127.0.0.1:9190"])
    assert words(source("mine", **reported), measured=[run]) == (
        "kernels --model lenet --batch 2 --target opencl --tracker 127.0.0.1:9190 --key adreno640 --records there"
    )


def test_a_target_of_one_s_own_is_not_guessed() -> None:
    assert words(source("one", workload="lenet", batch=2, target="metal")) == "targets"
