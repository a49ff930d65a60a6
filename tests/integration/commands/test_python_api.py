"""The Python API: what its page shows runs, and does what the command line does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from command import autotune as command

import autotune
from autotune import waits
from autotune.errors import pip_install
from autotune.jobs import requests
from autotune.jobs.kernels import ExportRequest
from autotune.workloads import training_step

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
SMALL = "matmul:m=16,n=32,k=16"


def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    for block in blocks:
        # The page's own code, but for the trials: one a kernel tells as much.
        exec(block.replace("trials=64", "trials=25"), names)
    assert names["again"].content == names["result"].content
    assert names["found"].best["energy_j"] > 0
    assert len(list((tmp_path / "logs").iterdir())) == 5


@pytest.mark.quick
def test_an_operator_is_tuned_as_by_the_command(tmp_path: Path) -> None:
    events: list[Any] = []
    result = autotune.tune_kernels(
        SMALL, role="forward", trials=6, logs=tmp_path, callbacks=[events.append]
    )
    (task,) = result.tasks
    assert (task.operator, task.role, task.trials) == ("matmul", "forward", 6)
    assert task.max_rel_error is not None
    assert task.max_rel_error < 1e-4
    assert result.speedup is not None
    assert json.loads((result.path / "result.json").read_text()) == result.content
    written = (result.path / "events.jsonl").read_text().splitlines()
    assert json.loads(json.dumps(events)) == [json.loads(line) for line in written]
    assert autotune.load_run(result.path) == result
    listed = json.loads(command("runs", tmp_path, "--json").stdout)["runs"]
    assert [(one["kind"], one["ended"]) for one in listed] == [("kernels", True)]


def test_a_module_object_is_tuned_with_its_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    capture = training_step.capture_module

    def slowly(*given: Any, **options: Any) -> Any:
        time.sleep(0.3)
        return capture(*given, **options)

    monkeypatch.setattr(training_step, "capture_module", slowly)
    monkeypatch.setattr(waits, "FIRST_S", 0.1)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    result = autotune.tune_kernels(
        net, batch=2, trials=4, input_shape=(3, 2, 2), logs=tmp_path, layout="channels-first"
    )
    assert result.content["model"] == "Sequential"
    assert "autotune: waiting: PyTorch to capture Sequential: " in capsys.readouterr().err
    measured = result.content["measured_step"]
    assert measured["tuned"]["ms"] > 0
    assert "object of this process" in measured["left_out"]["pytorch"]
    exported = result.export(tmp_path / "out")
    assert len(exported.manifest["kernels"]) == len(result.tasks)
    checked = command("verify", tmp_path / "out")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.quick
def test_a_search_on_a_model_of_a_phone(tmp_path: Path) -> None:
    found = autotune.cpu_config(
        emulate="meizu-16t",
        objective="latency",
        trials=3,
        blocks=1,
        least_seconds=0.2,
        logs=tmp_path,
    )
    assert found.content["n_measured"] == 3
    assert found.best["time_s"] > 0
    loaded = autotune.load_run(found.path)
    assert loaded == found


def test_frames_need_pandas_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = autotune.KernelsResult(tmp_path, {"tasks": [{"name": "a", "speedup": 2.0}]})
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(autotune.AutotuneError) as failed:
        result.to_frame()
    assert failed.value.hint == pip_install("pandas")
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    assert isinstance(result.to_frame(), pandas.DataFrame)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: autotune.tune_kernels("lenot"), "lenot"),
        (lambda: autotune.tune_kernels("lenet", colour="red"), "colour is not an option"),
        (lambda: autotune.tune_kernels(SMALL, batch=4), "an operator has its own sizes"),
        (lambda: autotune.tune_kernels("lenet", trials=0), "--trials is 0"),
        (lambda: autotune.load_run("/nowhere"), "no run at"),
    ],
)
def test_a_mistake_is_an_error_with_its_text(call: Any, text: str) -> None:
    with pytest.raises(autotune.AutotuneError, match=text):
        call()


@pytest.mark.quick
def test_import_is_fast_and_brings_no_tvm() -> None:
    code = (
        "import autotune, sys; print([m for m in ('tvm', 'numpy', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_exported_names_are_these() -> None:
    assert sorted(autotune.__all__) == [
        "AutotuneError", "Callback", "DISTRIBUTION", "KernelsResult", "SearchResult", "Step", "__version__",
        "cpu_config", "joint", "load_run", "tune_kernels",
    ]  # fmt: skip
    for name in autotune.__all__:
        assert hasattr(autotune, name)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "request_of", "given_otherwise"),
    [
        (requests.KernelsOptions, requests.KernelsRequest, {"step", "op", "target", "trials"}),
        (requests.SearchOptions, requests.SearchRequest, {"joint", "objective", "step", "trials"}),
        (requests.ExportOptions, ExportRequest, {"out", "runs", "plans", "moved", "format"}),
    ],
)
def test_options_are_the_fields_of_their_request(
    options: type, request_of: type, given_otherwise: set[str]
) -> None:
    named = set(get_type_hints(options)) - set(get_type_hints(requests.StepOptions))
    named -= {"optimizer", "input_shape"}  # of a step
    renamed = {"model_start": "model"}
    assert {renamed.get(name, name) for name in named} == {
        one.name for one in fields(request_of) if one.name not in given_otherwise
    }
    assert set(get_type_hints(requests.StepOptions)) <= {
        one.name for one in fields(requests.StepRequest)
    }


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 2.5}, "trials is 2.5: input should be a valid integer"),
        ({"trials": True}, "trials is True"),
        ({"trials": "4"}, "trials is '4'"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"role": 3}, "role is 3"),
        ({"target": 3}, "target is 3"),
        ({"records": 3}, "records is 3"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"op": SMALL}, "op is not an option"),
        ({"trial": 4}, "trial is not an option"),
        ({"input_shape": (1, 2)}, "input_shape: an operator has its own sizes"),
        ({"callbacks": [1]}, "callbacks are not functions"),
        ({"logs": 1}, "logs is a int"),
    ],
)
def test_values_of_other_types_are_refused_before_anything_is_measured(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(autotune.AutotuneError, match=re.escape(words)):
        autotune.tune_kernels(SMALL, **{"logs": tmp_path, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 2.5}, "trials is 2.5"),
        ({"deadline": 0.5}, "deadline is 0.5: input should be a valid string"),
        ({"space": 3}, "space is 3"),
        ({"batch": "4"}, "batch is '4'"),
        ({"batch": True}, "batch is True"),
        ({"classes": 2.5}, "classes is 2.5"),
        ({"input_shape": (1, 2.5)}, "input_shape is 2.5"),
        ({"command": ["a"]}, "command is ['a']"),
        ({"step": 1}, "step is not an option"),
        ({"objective": 1}, "objective is 1"),
        ({"runs": 1}, "logs is a int"),
    ],
)
def test_values_of_other_types_are_refused_before_a_search(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(autotune.AutotuneError, match=re.escape(words)):
        autotune.cpu_config("lenet", emulate="meizu-16t", **{"logs": tmp_path, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.quick
def test_one_value_may_stand_for_a_list_and_text_for_a_path(tmp_path: Path) -> None:
    events: list[Any] = []
    result = autotune.tune_kernels(
        SMALL, role="forward", trials=np.int64(4), logs=str(tmp_path), callbacks=events.append
    )
    assert events
    with pytest.raises(autotune.AutotuneError, match=f"no records at {re.escape('/nowhere/a')}"):
        autotune.tune_kernels(SMALL, records="/nowhere/a", logs=tmp_path)
    again = autotune.tune_kernels(
        SMALL, role="forward", trials=4, logs=tmp_path, start_from=str(result.path)
    )
    assert again.path != result.path
    assert len(repr(again)) < 300
    assert len(repr(again.export(tmp_path / "out"))) < 300


def test_a_module_that_is_gone_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))

    def stop(event: Any) -> None:
        if event["event"] == "trial":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        autotune.tune_kernels(
            net, input_shape=(1, 4, 4), batch=2, trials=40, logs=tmp_path, callbacks=stop
        )
    (run,) = tmp_path.iterdir()
    done = command("kernels", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert "Sequential existed only in the Python process that began the run" in (
        done.stdout + done.stderr
    )
    with pytest.raises(autotune.AutotuneError, match="no parameter matches 'lst:1'"):
        autotune.tune_kernels(net, input_shape=(1, 4, 4), batch=2, train="lst:1", logs=tmp_path)
