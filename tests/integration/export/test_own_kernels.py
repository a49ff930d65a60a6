"""A kernel of the user's own: tuned, resumed, exported and checked, from a file that is not part of the project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import autotune as command
from command import autotune_here

import autotune
from autotune import waits
from autotune.compiler.programs import own_kernel
from autotune.errors import UsageError
from autotune.workloads import random_inputs, reference

KERNELS = '''
import numpy as np
from tvm import te
from tvm.script import tirx as T


def scaled():
    a = te.placeholder((24, 40), name="a")
    b = te.placeholder((40,), name="b")
    return [a, b, te.compute((24, 40), lambda i, j: a[i, j] * 2.0 + b[j], name="out")]


def scaled_reference(a, b):
    return 2 * a + b


@T.prim_func(s_tir=True)
def product(
    a: T.Buffer((32, 48), "float32"), b: T.Buffer((48, 16), "float32"), c: T.Buffer((32, 16), "float32")
):
    for i, j, k in T.grid(32, 16, 48):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


def product_reference(a, b):
    return a @ b


def taken():
    """Two results, and an operand of integers that index."""
    rows = te.placeholder((20, 8), name="rows")
    at = te.placeholder((6,), dtype="int32", name="at")
    chosen = te.compute((6, 8), lambda i, j: rows[at[i], j], name="chosen")
    k = te.reduce_axis((0, 8), name="k")
    return [rows, at, chosen, te.compute((6,), lambda i: te.sum(rows[at[i], k], axis=k), name="sums")]


def taken_inputs(generator):
    return generator.normal(size=(20, 8)), generator.integers(0, 20, 6)


def taken_reference(rows, at):
    return rows[at], rows[at].sum(axis=1)


def wrong():
    return scaled()


def wrong_reference(a, b):
    return 2 * a - b
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    return path


def test_a_program_is_read_with_its_operands(file: Path) -> None:
    kernel = own_kernel(f"{file}:taken")
    assert [(one.shape, one.dtype) for one in kernel.inputs] == [
        ((20, 8), "float32"),
        ((6,), "int32"),
    ]
    assert [one.shape for one in kernel.outputs] == [(6, 8), (6,)]
    rows, at = random_inputs(kernel, 1)
    assert at.dtype == "int32"
    chosen, sums = reference(kernel, [rows, at])
    assert chosen.shape == (6, 8)
    assert sums == pytest.approx(rows.astype("float64")[at].sum(axis=1))
    assert own_kernel(f"{file}:product").flops == 2 * 32 * 16 * 48


@pytest.mark.parametrize("function", ["scaled", "product", "taken"])
def test_a_kernel_is_tuned_resumed_exported_and_right(file: Path, function: str) -> None:
    logs = file.parent / "logs"
    result = autotune.tune_kernels(f"own:{file}:{function}", trials=6, logs=logs)
    (task,) = result.tasks
    assert task.tuned_ms is not None
    assert task.max_rel_error is not None
    assert task.max_rel_error < 1e-4
    resumed = autotune_here("kernels", "--resume", result.path, "--trials", 8, "--json")
    assert resumed.returncode == 0, resumed.stderr
    for form in ("c", "tvm"):
        out = file.parent / form
        done = command("export", result.path, "--format", form, "--out", out)
        assert done.returncode == 0, done.stderr
        checked = command("verify", out, "--json")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        kernels = {one["kernel"] for one in json.loads(checked.stdout)["results"]}
        assert kernels == {task.name}
    again = autotune_here(
        "kernels",
        "--op",
        f"{file}:{function}",
        "--trials",
        2,
        "--from",
        result.path,
        "--logs",
        logs,
    )
    assert again.returncode == 0, again.stderr


def test_slow_functions_are_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "FIRST_S", 0.1)
    slow = KERNELS.replace("import numpy as np\n", "import time\ntime.sleep(0.3)\n", 1)
    file.write_text(slow.replace("return 2 * a + b", "time.sleep(0.3); return 2 * a + b", 1))
    messages: list[str] = []
    with waits.telling(messages.append):
        kernel = own_kernel(f"{file}:scaled")
        reference(kernel, random_inputs(kernel, 1))
    assert any(line.startswith(f"{file}:scaled to be loaded: ") for line in messages)
    assert any(line.startswith("scaled's reference: ") for line in messages)


def test_a_kernel_is_tuned_for_a_gpu(file: Path) -> None:
    logs = file.parent / "logs"
    done = autotune_here(
        "kernels",
        "--op",
        f"{file}:product",
        "--target",
        "adreno",
        "--trials",
        3,
        "--logs",
        logs,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert task["tuned_ms"] > 0
    assert task["max_rel_error"] < 1e-4


def test_a_kernel_that_its_reference_contradicts_has_no_time(file: Path) -> None:
    done = autotune_here(
        "kernels", "--op", f"{file}:wrong", "--trials", 2, "--logs", file.parent / "logs"
    )
    assert done.returncode == 5
    reported = next(line for line in done.stderr.splitlines() if "error" in line)
    assert "the results of wrong differ from those of wrong_reference: relative error " in reported


def test_code_of_a_run_from_elsewhere_is_not_run(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = file.parent / "logs"
    result = autotune.tune_kernels(f"own:{file}:scaled", trials=2, logs=logs)
    monkeypatch.setenv("XDG_STATE_HOME", str(file.parent / "other"))
    touched = f"\nimport pathlib\npathlib.Path({str(file.parent / 'ran')!r}).touch()\n"
    file.write_text(KERNELS + touched)
    for words in (
        ("kernels", "--resume", result.path), ("export", result.path, "--out", file.parent / "out"),
    ):  # fmt: skip
        refused = autotune_here(*words)
        assert refused.returncode == 2
        assert "which is not trusted on this machine" in refused.stderr
        assert f"autotune trust {result.path}" in refused.stderr
    shown = autotune_here("records", "show", result.path)
    assert shown.returncode == 0, shown.stderr
    assert "own scaled 24x40" in shown.stdout
    assert shown.stderr.splitlines()[-1] == f"next: autotune trust {result.path}"
    assert not (file.parent / "ran").exists()
    autotune_here("trust", result.path)
    assert autotune_here("kernels", "--resume", result.path).returncode == 0
    assert (file.parent / "ran").exists()


def test_records_of_a_kernel_name_its_file(file: Path) -> None:
    result = autotune.tune_kernels(f"own:{file}:scaled", trials=2, logs=file.parent / "logs")
    shown = autotune_here("records", "show", result.path)
    assert "None" not in shown.stdout
    words = f"kernels --op {file}:scaled --records {result.path}"
    assert shown.stderr.splitlines()[-1] == f"next: autotune {words}"
    assert autotune_here(*words.split(), "--trials", 2, "--logs", file.parent).returncode == 0
    about = json.loads((result.path / "run.json").read_text())
    about["request"]["own"] = None
    (result.path / "run.json").write_text(json.dumps(about))
    refused = autotune_here("kernels", "--resume", result.path)
    assert refused.returncode == 1
    assert "the run's request is damaged: its kernel is the user's own" in refused.stderr


def test_a_changed_program_is_another_kernel(file: Path) -> None:
    result = autotune.tune_kernels(f"own:{file}:scaled", trials=2, logs=file.parent / "logs")
    file.write_text(KERNELS.replace("* 2.0", "* 3.0"))
    refused = autotune_here("kernels", "--resume", result.path)
    assert refused.returncode == 2
    assert "has another program than when" in refused.stderr


def _edited(before: str, after: str) -> Callable[[str], str]:
    return lambda text: text.replace(before, after)


def _shaped(shape: str) -> Callable[[str], str]:
    program = f"""
def shaped():
    a = te.placeholder({shape}, name="a")
    return [a, te.compute({shape}, lambda *at: a(*at) * 2.0, name="out")]


shaped_reference = abs
"""
    return lambda text: text + program


@pytest.mark.quick
@pytest.mark.parametrize(
    ("function", "edit", "words"),
    [
        ("none", str, "has no function 'none'"),
        ("scaled", _edited("def scaled_reference", "def other"), "has no function scaled_reference"),
        ("scaled", _edited("def scaled():", "def scaled(a):"), "missing 1 required positional argument"),
        ("scaled", _edited("return [a, b, te", "return [a, te"), "te.placeholder|not a TVM program|raised"),
        ("scaled", _edited("return [a, b, te", "return 7, [te"), "returned tuple, not a TVM program"),
        ("scaled", _edited("(40,), name", "(40,), dtype='float64', name"), "is float64"),
        ("scaled", _edited("(40,), name", "(te.var('n'),), name"), "has no fixed shape"),
        ("scaled", _edited("return [a, b,", "return [te.compute((2,), lambda i: a[i, i]), a, b,"), "first param"),
        ("shaped", _shaped("(1 << 40,)"), r"has the shape \(1099511627776,\)"),
        ("shaped", _shaped("(0, 8)"), r"has the shape \(0, 8\)"),
        ("shaped", _shaped("(-1, 8)"), r"has the shape \(-1, 8\)"),
        ("shaped", _shaped("(1,) * 9"), r"has the shape \(1, 1, 1, 1, 1, 1, 1, 1, 1\)"),
        ("shaped", _shaped("(1 << 16, 1 << 16)"), r"has the shape \(65536, 65536\)"),
        ("shaped", _shaped("()"), r"has the shape \(\)"),
        ("über", _edited("wrong", "über"), "'über' cannot be the name of a kernel"),
        ("_own", _edited("wrong", "_own"), "'_own' cannot be the name of a kernel"),
        ("n" * 41, _edited("wrong", "n" * 41), "cannot be the name of a kernel"),
        ("scaled", _edited("import numpy", "import nompy"), "No module named 'nompy'"),
    ],
)  # fmt: skip
def test_what_is_no_kernel_is_told(
    file: Path, function: str, edit: Callable[[str], str], words: str
) -> None:
    file.write_text(edit(KERNELS))
    with pytest.raises(UsageError, match=words) as raised:
        own_kernel(f"{file}:{function}")
    assert "\n" not in raised.value.message
    assert "operand" not in raised.value.message


@pytest.mark.quick
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("return 2 * a + b", "return 2 * a", None),
        ("return 2 * a + b", "return (2 * a + b)[:3]", "returns arrays of shape"),
        ("return 2 * a + b", "return a, b", "returns arrays of shape"),
        ("return 2 * a + b", "return a / 0 * 0", "not finite"),
        ("return 2 * a + b", "return a * 2j", "returns an array of complex128, not"),
        ("return 2 * a + b", "return a.astype(str)", "returns an array of texts, not"),
        ("return 2 * a + b", "return a.astype(object)", "returns an array of objects, not"),
        ("return 2 * a + b", "return None", "returns None, not"),
        ("return 2 * a + b", "return {}", "returns a value of type dict, not"),
        ("return 2 * a + b", "return a.nothing", "has no attribute 'nothing'"),
    ],
)
def test_a_reference_that_fits_not_is_told(
    file: Path, before: str, after: str, words: str | None
) -> None:
    file.write_text(KERNELS.replace(before, after))
    kernel = own_kernel(f"{file}:scaled")
    inputs = random_inputs(kernel, 1)
    if words is None:
        assert reference(kernel, inputs)[0].shape == (24, 40)
        return
    with pytest.raises(UsageError, match=words):
        reference(kernel, inputs)
