"""The command that a result of records leads to: it tunes the same kernels, where they were measured."""

from typing import Any

import pytest

from autotune.cli.options.next_words import tuning_words
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


def words(*sources: Source) -> str:
    return " ".join(map(str, tuning_words(Database.of(sources, []))))


FORM = Form(classes=7, optimizer="adam", micro_batch=1)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"workload": "lenet", "batch": 2}, "--model lenet --batch 2"),
        (
            {"workload": "lenet", "batch": 2, "step": FORM},
            "--model lenet --batch 2 --classes 7 --optimizer adam --micro-batch 1",
        ),
        (
            {"workload": "Net", "batch": 2, "step": Form(input_shape="3x32x32")},
            "--model MODEL --batch 2 --input-shape 3x32x32",
        ),
        ({"workload": "matmul", "batch": None}, "--op matmul:m=8,n=8,k=8 --role forward"),
        (
            {"workload": "lenet", "batch": 2, "kind": "rpc-opencl", "target": "opencl"},
            "--model lenet --batch 2 --target opencl --tracker HOST:PORT --key KEY",
        ),
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
            "--model MODEL --batch 2 --",
        ),
    ],
)
def test_the_command_tunes_what_the_records_have(told: dict[str, Any], expected: str) -> None:
    assert f"{words(source('one', **told))} --".startswith(expected)


def test_the_newest_run_of_a_built_in_model_is_meant() -> None:
    old = source("old", workload="lenet", batch=2, began=1.0)
    new = source("new", workload="lenet", batch=8, began=2.0)
    other = source("other", workload="Net", batch=16, began=3.0)
    assert words(new, old, other) == "--model lenet --batch 8"
    assert words(other) == "--model MODEL --batch 16"
