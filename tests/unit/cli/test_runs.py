"""`autotune runs`, and `latest` wherever a run is taken."""

import inspect
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.commands.compare import compare
from autotune.cli.commands.export import export
from autotune.cli.commands.profile import profile
from autotune.cli.commands.report import report
from autotune.cli.main import app, main
from autotune.cli.options.latest import LatestRun, plan_path, run_path
from autotune.cli.options.workload import of_the_model
from autotune.cli.search_commands.cpu_config_apply import apply
from autotune.cli.search_commands.cpu_config_compare import compare as points_compared
from autotune.cli.search_commands.replay import replay
from autotune.cli.shared import Later
from autotune.devices import Cluster
from autotune.errors import UsageError, printable
from autotune.records import (
    About,
    Database,
    Identity,
    Schedule,
    SearchedTask,
    Source,
    write_database,
)

POINTS = {"best": {"clusters": {}}, "default": {"clusters": None}, "points": {}, "pareto": []}
ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"

DAMAGED = "20991231T000002Z-x"
SKIPPED = f"autotune: warning: latest: skipped {DAMAGED}: "
PLAN: dict[str, Any] = {
    "schema_version": 1, "kind": "plan", "device": {"serial": "abc", "soc": "sm8150"}, "emulated": False,
    "profile": None, "step": {"model": "lenet", "runs": ["logs/a"]},
    "settings": [{"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4}],
    "calls": [{"kernel": "relu", "device": "cpu", "setting": 0, "schedule": None}],
    "configuration": {"clusters": {"big": {"cores": 4, "khz": 2419200}}, "threads": 4},
    "memory": {"planned_bytes": 64, "offsets": {"w": 0}}, "measured": {"time_s": 0.1},
}  # fmt: skip


def parser_of(command: Callable[..., Any], option: str) -> Callable[[str], Path]:
    """The parser of an option of a command."""
    parameter = inspect.signature(command, eval_str=True).parameters[option]
    parser: Callable[[str], Path] = parameter.annotation.__metadata__[0].parser
    return parser


def search_of(model: str, batch: int) -> dict[str, Any]:
    """The request of a joint search."""
    return {"objective": "latency", "step": {"model": model, "batch": batch}}


def add_run(
    logs: Path,
    name: str,
    request: dict[str, Any],
    result: dict[str, Any] | None = POINTS,
    *,
    events: Sequence[dict[str, Any]] = (),
    device: dict[str, Any] | None = None,
) -> Path:
    """Makes a run, which has ended if it has a result."""
    run = logs / name
    run.mkdir(parents=True)
    about = {"schema_version": 1, "request": request, "device": device or {"name": "a phone"}}
    (run / "run.json").write_text(json.dumps(about))
    (run / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    if result is not None:
        (run / "result.json").write_text(json.dumps(result))
    return run


def found(parser: Callable[[str], Path], text: str, option: str = "run", **options: Any) -> Path:
    """What an option's value is, where a command has these options."""
    value: Any = parser(text)
    return Path(value.found(option, options) if isinstance(value, Later) else value)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three runs: kernels, a search that did not end, and kernels before both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    folder = tmp_path / "logs"
    for name in ("20260101T000000Z-cpu-matmul", "20260103T000000Z-cpu-matmul"):
        shutil.copytree(SAMPLE, folder / name)
    search = folder / "20260104T000000Z-joint-sm8150"
    search.mkdir()
    request = {"objective": "latency", "joint": True, "step": {"model": "lenet", "batch": 8}}
    about: dict[str, Any] = {"schema_version": 1, "request": request, "device": {"name": "a phone"}}
    (search / "run.json").write_text(
        json.dumps({**about, "command": "autotune joint --model lenet"})
    )
    (search / "events.jsonl").write_text("")
    (folder / "20260105T000000Z-broken").mkdir()
    (folder / "20260105T000000Z-broken" / "run.json").write_text("{")
    return folder


def test_runs_are_listed_the_newest_first(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"][:8] for one in found["runs"]] == ["20260104", "20260103", "20260101"]
    search, kernels, _ = found["runs"]
    assert (search["kind"], search["model"], search["batch"], search["ended"]) == (
        "joint",
        "lenet",
        8,
        False,
    )
    assert search["to_end"].endswith(f"autotune joint --resume logs/{search['name']}")
    assert search["command"] == "autotune joint --model lenet"
    assert (kernels["kind"], kernels["model"], kernels["ended"]) == ("kernels", "matmul", True)
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:4] == ["run", "command", "model", "batch"]
    assert "not ended" in shown[2]
    assert main(["runs", "elsewhere"]) == 2
    assert main(["runs", "--logs", "elsewhere"]) == 2
    assert "there is no folder elsewhere" in capsys.readouterr().err
    Path("elsewhere").write_text("")
    assert main(["runs", "--logs", "elsewhere"]) == 2
    assert "elsewhere is not a folder" in capsys.readouterr().err
    assert main(["runs", "logs", "--logs", "logs"]) == 2
    assert main(["runs", "--logs", str(logs), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 3


@pytest.mark.parametrize("words", [["runs"], ["runs", "--wide"], ["report"], ["records", "show"]])
def test_a_run_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    run = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    about["device"]["name"] = "\x1b[2JX\x07\x9b"
    about["request"]["workload"] = "\x1b[31mred"
    about["request"]["cores"] = {"cluster": "\x1b[31m", "cpus": [0], "emulated": ""}
    about["command"] = "autotune kernels \x1b]0;title\x07"
    (run / "run.json").write_text(json.dumps(about))
    assert main([*words, str(tmp_path if words[0] == "runs" else run)]) == 0
    reported = "".join(capsys.readouterr())
    assert reported == printable(reported)
    assert words[0] == "report" or "\\x1b[2JX" in reported


@pytest.mark.parametrize(
    "words",
    [
        ["show", "{}"],
        ["list", "{}"],
        ["diff", "{}", "{}"],
        ["merge", "{}", "--out", "{}-out"],
        ["pull", "{}", "--store", "{}-out"],
    ],
)
def test_records_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    odd = "\x1b[31m\x07"
    task = SearchedTask("matmul:m=8,n=8,k=8", odd, 1, 0.5, 9, ())
    about = About(odd, 0.0, odd, None, versions={odd: odd}, git=odd, target=odd)
    identity = Identity(odd, odd, odd, odd, odd, stand_in=True)
    schedule = Schedule.of(odd, odd, odd, [[], []], {odd: 1.0})
    path = tmp_path / "a.records.gz"
    write_database(
        path, Database.of([Source(odd, identity, odd, about, 9, {odd: task})], [schedule])
    )
    assert main(["records", *(word.format(path) for word in words)]) == 0
    reported = "".join(capsys.readouterr())
    assert reported == printable(reported)


def test_the_merge_that_a_difference_proposes_can_be_typed_again(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for expected in ("merged", "merged-2", "merged-3"):
        assert main(["records", "diff", "latest", f"logs/{HERE}"]) == 0
        words = shlex.split(capsys.readouterr().err.rpartition("next: autotune ")[2])
        assert words[-1] == expected
        assert main(words) == 0


def test_an_error_as_json_is_what_the_reference_says(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "elsewhere", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    text = (
        (ROOT / "docs" / "reference" / "commands.md")
        .read_text()
        .partition("An error is a JSON object")[2]
    )
    reported = re.findall(r'"(\w+)"', text.partition("`{")[2].partition("}}`")[0])
    assert reported == [*found, *found["error"]]


def test_no_runs_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "no runs in logs" in capsys.readouterr().out
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert main(["report", "latest"]) == 2
    assert "DIR/latest is its newest run" in capsys.readouterr().err


def test_latest_is_the_newest_run_that_a_command_takes(logs: Path) -> None:
    newest, search = (
        logs / f"2026010{day}T000000Z-{what}"
        for day, what in ((3, "cpu-matmul"), (4, "joint-sm8150"))
    )
    relative = Path("logs")
    assert found(run_path("kernels"), "latest") == relative / newest.name
    assert found(run_path(ended=False), "latest") == relative / search.name
    assert found(run_path(), "latest") == relative / newest.name
    moved = shutil.copytree(logs, logs.parent / "others")
    assert found(run_path("kernels"), f"{moved}/latest") == moved / newest.name
    with pytest.raises(UsageError, match="no finished run of profile in logs") as none:
        found(run_path("profile"), "latest")
    assert "DIR/latest" in none.value.hint
    # Of one second, the one whose folder was made last.
    twin = shutil.copytree(newest, logs / f"{newest.name}-2")
    os.utime(twin / "run.json", (2e9, 2e9))
    assert found(run_path("kernels"), "latest") == relative / twin.name
    # A folder of that name counts.
    Path("latest").mkdir()
    assert found(run_path("kernels"), "latest") == Path("latest")


def for_target(run: Path, family: str, triple: str = "") -> None:
    """Makes a run one of kernels for another processor."""
    about = json.loads((run / "run.json").read_text())
    about["request"]["target"] |= {"family": family, "triple": triple}
    (run / "run.json").write_text(json.dumps(about))


ARM = "aarch64-linux-gnu"
HERE, THERE, GPU = (f"2026010{day}T000000Z-cpu-matmul" for day in (1, 3, 2))


@pytest.mark.parametrize(
    ("option", "options", "expected"),
    [
        ("run", {"device": None, "plan": None}, HERE),
        ("run", {"device": "local", "emulate": None}, HERE),
        ("run", {"device": None, "emulate": "meizu-16t"}, THERE),
        ("run", {"device": "9WV4C18B11001234"}, THERE),
        ("run", {"device": None, "ssh": ["pi@board"]}, THERE),
        ("run", {}, THERE),
        ("gpu_run", {"device": None}, GPU),
        ("start_from", {"target": None, "target_json": None, "emulate": None}, HERE),
        ("records", {"target": "arm-cpu", "target_json": None, "emulate": None}, THERE),
        ("start_from", {"target": None, "target_json": None, "emulate": "meizu-16t"}, THERE),
        ("start_from", {"target": "mali", "target_json": None, "emulate": None}, GPU),
        ("runs", {"kind": "opencl"}, GPU),
        ("runs", {"kind": "c"}, THERE),
    ],
)
def test_latest_is_for_the_processor_that_the_command_uses(
    logs: Path, option: str, options: dict[str, Any], expected: str
) -> None:
    shutil.copytree(SAMPLE, logs / GPU)
    for_target(logs / THERE, "cpu", ARM)
    for_target(logs / GPU, "opencl", ARM)
    # Newer than all others, but it has not ended.
    unfinished = shutil.copytree(SAMPLE, logs / "20260109T000000Z-cpu-matmul")
    (unfinished / "result.json").unlink()
    assert found(run_path("kernels"), "latest", option, **options).name == expected


def test_a_command_takes_the_newest_run_that_fits_its_other_options(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for_target(logs / THERE, "cpu", ARM)
    shutil.rmtree(logs / HERE)
    step = ["step", "--run", "latest", "--model", "lenet", "--batch", "2"]
    assert main(step) == 2
    assert "no finished run of kernels for cpu in logs" in capsys.readouterr().err
    assert main(["kernels", "--from", "latest", "--op", "matmul:m=8,n=8,k=8"]) == 2
    assert "no finished run of kernels for cpu in logs" in capsys.readouterr().err


def test_the_latest_plan_is_that_of_the_newest_search_with_one(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="no run of joint with plans"):
        found(plan_path(), "latest")
    for arguments in (["step", "--plan", "latest"], ["export", "--plan", "latest", "--out", "x"]):
        assert main(arguments) == 2
        assert "no run of joint with plans/best.json" in capsys.readouterr().err
    search = logs / "20260104T000000Z-joint-sm8150"
    earlier = Path(shutil.copytree(search, logs / "20260102T000000Z-joint-sm8150"))
    (earlier / "plans").mkdir()
    for name in ("best.json", "knee.json"):
        (earlier / "plans" / name).write_text(json.dumps(PLAN))
    plans = Path("logs", earlier.name, "plans")
    assert found(plan_path(), "latest") == plans / "best.json"
    assert found(plan_path(), "latest/plans/knee.json") == plans / "knee.json"
    assert found(plan_path(), f"logs/{earlier.name}") == plans / "best.json"
    # One that is damaged is skipped.
    shutil.copytree(earlier, logs / DAMAGED)
    (logs / DAMAGED / "plans" / "best.json").write_text("{}")
    capsys.readouterr()
    assert found(plan_path(), "latest") == plans / "best.json"
    (logs / earlier.name / "plans" / "best.json").write_text("{")
    assert main(["step", "--plan", "latest"]) == 2
    assert f"logs/{DAMAGED}/plans/best.json is not a plan" in capsys.readouterr().err


def test_commands_take_latest(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["breakdown", "latest"],
        ["records", "show", "latest"],
        ["compare", "latest", "logs/20260101T000000Z-cpu-matmul"],
        ["report", "logs/latest"],
    ):
        assert main(arguments) == 0
    capsys.readouterr()
    # The newest of all is a search without a measurement, which has no page.
    assert main(["report", "latest"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "logs/20260103T000000Z-cpu-matmul/report.html\n"
    skipped, following = shown.err.splitlines()
    assert skipped.startswith(
        "autotune: warning: latest: skipped 20260105T000000Z-broken, 20260104T000000Z-joint-sm8150: "
    )
    assert following.startswith("next: python -m webbrowser ")
    assert main(["-q", "report", "latest"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("result.json", "{}"),
        ("result.json", "[]"),
        ("events.jsonl", "{\n"),
        ("run.json", "[]"),
        ("run.json", "{"),
    ],
)
def test_latest_skips_damaged_runs_and_says_which(
    logs: Path, capsys: pytest.CaptureFixture[str], file: str, content: str
) -> None:
    for name in ("20260104T000000Z-joint-sm8150", "20260105T000000Z-broken"):
        shutil.rmtree(logs / name)
    shutil.copytree(SAMPLE, logs / DAMAGED)
    (logs / DAMAGED / file).write_text(content)
    for arguments in (
        ["report", "latest"],
        ["report", "latest", "--csv", "a.csv"],
        ["compare", "latest", "latest"],
        ["compare", "latest", f"logs/{HERE}"],
        ["records", "show", "latest"],
        ["records", "list", "latest"],
        ["records", "diff", "latest", f"logs/{HERE}"],
        ["breakdown", "latest"],
        ["export", "latest", "--csv", "b.csv"],
    ):
        assert main(arguments) == 0, arguments
        reported = capsys.readouterr().err.splitlines()
        assert [SKIPPED in line for line in reported].count(True) == 1, arguments
    if not file.startswith("run"):
        for run in (HERE, THERE):
            shutil.rmtree(logs / run)
        assert main(["report", "latest"]) == 1
        assert f"error: logs/{DAMAGED}/{file}" in capsys.readouterr().err


def test_latest_skips_damaged_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    search = ["cpu-config", "--emulate", "meizu-16t", "--model", "lenet", "--trials", "3"]
    assert main([*search, "--logs", "made"]) == 0
    (run,) = Path("made").iterdir()
    for name in (HERE, DAMAGED):
        shutil.copytree(run, Path("logs", name))
    Path("logs", DAMAGED, "result.json").write_text("{}")
    add_run(Path("logs"), THERE, search_of("lenet", 4), None)
    for words in (["report"], ["compare", f"logs/{HERE}"], ["profile", "--of"]):
        capsys.readouterr()
        code = main([*words, "latest"])
        reported = capsys.readouterr().err
        assert f"autotune: warning: latest: skipped {DAMAGED}" in reported
        assert code == (2 if "--of" in words else 0), reported


def test_an_old_damaged_run_is_not_told(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / HERE / "result.json").write_text("{}")
    assert main(["breakdown", "latest"]) == 0
    assert HERE not in capsys.readouterr().err


def test_what_is_compared_with_the_latest_says_its_kind(logs: Path) -> None:
    shutil.rmtree(logs / THERE)
    search = logs / "20260104T000000Z-joint-sm8150"
    (search / "result.json").write_text(json.dumps(POINTS))
    comparison = {"run": str(search), "first": "best", "second": "default", "by": "time"}
    other = {"objective": "latency", "step": {"model": "alexnet", "batch": 16}}
    add_run(logs, "20260105T000001Z-cpu-config", other)
    add_run(logs, "20260106T000000Z-compare", comparison)
    parser = parser_of(compare, "first")
    assert found(parser, "latest", "first", second=Path("logs", HERE)).name == HERE
    assert found(parser, "latest", "first", second=search) == Path("logs", search.name)
    assert found(parser, "latest", "first", second=None).name == "20260105T000001Z-cpu-config"
    like = add_run(logs, "20260101T000000Z-joint", search_of("lenet", 4))
    with pytest.raises(
        UsageError, match="20260105T000001Z-cpu-config is of alexnet at batch 16, and"
    ):
        found(parser, "latest", "first", second=like.rename(logs.parent / like.name))


def test_two_latest_runs_can_be_compared(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    comparison = {"run": "logs/x", "first": "best", "second": "default", "by": "time"}
    add_run(logs, "20260106T000000Z-compare", comparison)
    assert main(["compare", "latest", "logs/latest", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["first"]["run"] == shown["second"]["run"] == f"logs/{THERE}"


@pytest.mark.parametrize(
    ("command", "option", "options", "day"),
    [
        (apply, "run", {"point": None}, 1),
        (points_compared, "run", {"first": "knee", "second": "default"}, 1),
        (profile, "of", {"point": "knee"}, 1),
        (replay, "recorded", {}, 1),
        (report, "run", {"csv": Path("a.csv"), "t4": None, "out": None}, 2),
    ],
)
def test_runs_that_a_command_would_refuse_are_passed_over(
    logs: Path, command: Callable[..., Any], option: str, options: dict[str, Any], day: int
) -> None:
    shutil.rmtree(logs)
    trial = {"event": "trial", "status": "ok", "time": 1.0, "figures": {"time_s": 1.0}}
    cluster = Cluster("big", (0, 1), None, 500, 1000, (500, 1000), (), ())
    device = {"serial": "x", "clusters": [asdict(cluster)]}
    add_run(
        logs, "20260101T000000Z-cpu-config", search_of("lenet", 4),
        {**POINTS, "points": {"knee": {"clusters": {"big": {"cores": 1, "khz": 1000}}}}},
        events=[trial | {"configuration": {"clusters": {"big": {"cores": 1, "khz": 1000}}, "threads": 1}}],
        device=device,
    )  # fmt: skip
    # An emulated device is gone, a search that measured nothing has nothing to show, and a kind may be unknown.
    emulated = search_of("lenet", 4) | {"emulate": "meizu-16t"}
    add_run(logs, "20260102T000000Z-cpu-config", emulated, POINTS, device=device)
    add_run(logs, "20260103T000000Z-cpu-config", search_of("lenet", 4), None, device=device)
    add_run(logs, "20260104T000000Z-new", {"kind": "of another version"})
    assert found(parser_of(command, option), "latest", option, **options).name.startswith(
        f"2026010{day}"
    )


def test_latest_skips_runs_that_cannot_be_exported(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = logs / THERE
    result = json.loads((newest / "result.json").read_text())
    (newest / "result.json").write_text(json.dumps(result | {"stand_in": True}))
    options = {"out": Path("x"), "run": None, "kind": "tvm", "allow_stand_in": False}
    parser = parser_of(export, "runs")
    assert found(parser, "latest", "runs", **options).name == HERE
    assert found(parser, "latest", "runs", **options | {"allow_stand_in": True}).name == THERE
    shutil.rmtree(logs / HERE)
    assert main(["export", "latest", "--out", "x"]) == 2
    assert f"{THERE}" in capsys.readouterr().err


def test_every_option_and_argument_that_takes_a_run_takes_latest(logs: Path) -> None:
    names = {
        "run",
        "runs",
        "resume",
        "of",
        "first",
        "second",
        "plan",
        "start_from",
        "gpu_run",
        "records",
        "recorded",
    }
    groups = [
        app,
        *(group.typer_instance for group in app.registered_groups if group.typer_instance),
    ]
    callbacks = [one.callback for group in groups for one in group.registered_commands]
    callbacks += [
        group.registered_callback.callback for group in groups if group.registered_callback
    ]
    seen = set()
    for callback in filter(None, callbacks):
        parameters = inspect.signature(callback).parameters
        for name in names & parameters.keys():
            if callback.__module__.endswith("cpu_config_compare") and name != "run":
                continue  # Points of a run.
            (option,) = parameters[name].annotation.__metadata__
            value = option.parser("elsewhere/latest")
            assert isinstance(value, LatestRun), (callback, name)
            assert value.folder == Path("elsewhere"), (callback, name)
            seen.add((callback.__module__.rpartition(".")[2], name))
    assert {("kernels", "resume"), ("export", "runs"), ("profile", "of"), ("step", "plan")} <= seen
    assert len(seen) > 15


def test_the_latest_run_of_a_step_is_of_its_model(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest, older = logs / THERE, logs / "20250101T000000Z-cpu-lenet"
    shutil.copytree(SAMPLE, older)
    about = json.loads((older / "run.json").read_text())
    about["step"] = {"model": "/home/me/net.py:make"}
    (older / "run.json").write_text(json.dumps(about))
    parser = run_path("kernels", check=of_the_model)
    assert found(parser, "latest", "run", model="net.py:make", device="local").name == older.name
    assert THERE in caplog.text
    assert found(parser, "latest", "run", model=None, device="local").name == newest.name
    with pytest.raises(UsageError, match="has tuned matmul, not alexnet"):
        found(parser, "latest", "run", model="alexnet", device="local")
