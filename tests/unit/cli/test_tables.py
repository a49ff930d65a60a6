"""Tables on stdout: they fit the terminal, name what they leave out, and have everything with --wide."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.commands.compare import show as show_comparison
from autotune.cli.commands.doctor import write_report
from autotune.cli.commands.kernels_table import show as show_kernels
from autotune.cli.commands.profile import show as show_profile
from autotune.cli.main import main
from autotune.cli.search_commands.cpu_config_table import show as show_search
from autotune.cli.shared.output import (
    Column,
    number,
    speedup_text,
    time_text,
    times_text,
    with_wide,
    write_table,
)
from autotune.doctor.check import Check
from autotune.records import Result, TaskResult
from autotune.studies.space.configuration_text import compared_text, gain_text
from autotune.workloads import StepForm, build_model, formed, tasks
from autotune.workloads.spec import short_name

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "logs" / "samples" / "cpu-matmul"
WIDTHS = (80, 100, 160)


@pytest.fixture(scope="module")
def googlenet() -> Result:
    """A result as long as they get: every kernel of GoogLeNet, with failures and long formulations."""
    graph = formed(build_model("googlenet", 4, 10), StepForm("channels_last"))
    found = []
    for place, task in enumerate(tasks(graph)):
        kernel = task.kernel
        before, after = 120.0 / (1 + place), 12.0 / (1 + place % 7)
        found.append(
            TaskResult(
                name=kernel.name, operator=kernel.operator.name, role=kernel.role, spec=kernel.spec,
                count=task.count, default_ms=None if place == 5 else before, tuned_ms=after,
                speedup=None if place == 5 else before / after, ci=(0.9 * before / after, 123.456),
                gflops=12.3, trials=128, valid=100, failures={"wrong_result": 12, "build_timeout": 16},
                max_rel_error=1e-6, formulation="implicit_gemm_split", digest="0123456789abcdef",
            )
        )  # fmt: skip
    return Result("cpu", {"name": "A processor"}, False, 1000, 60.0, tuple(found))


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", WIDTHS)
def test_kernels_fit_and_those_that_save_most_come_first(
    columns: int,
    googlenet: Result,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show_kernels(googlenet, None)
    head, _, *rows = lines_of(capsys)
    assert max(map(len, [head, *rows])) <= columns
    for title in ("no.", "kernel", "role", "count", "untuned", "tuned", "speed-up (95 %)"):
        assert title in head
    assert head.index("role") - head.index("kernel") >= 22
    # One line a kernel.
    kernels = rows[: len(googlenet.tasks)]
    assert all(row[:3].strip().isdecimal() for row in kernels)
    shown = [googlenet.tasks[int(row.split()[0]) - 1] for row in kernels]
    assert len({task.name for task in shown}) == len(googlenet.tasks)
    saved = [t.count * (t.default_ms - (t.tuned_ms or 0)) for t in shown if t.default_ms]
    assert saved == sorted(saved, reverse=True)
    assert shown[-1].default_ms is None
    for row, task in zip(kernels, shown, strict=True):
        reported = row[head.index("kernel") : head.index("role")].strip()
        name = short_name(task.spec) if columns > 80 else short_name(task.spec).replace("2d ", " ")
        begin, _, end = reported.partition("…")
        assert name.startswith(begin), reported
        assert name.endswith(end), reported
        role = {"forward": "fwd", "data_grad": "dgrad", "weight_grad": "wgrad", "update": "upd"}
        shown_role = task.role if columns > 80 else role[task.role]
        assert row[head.index("role") :].split()[:2] == [shown_role, str(task.count)]
        assert re.search(r"\dx \(?[0-9.]+-[0-9.]+" if task.speedup else " - ", row), row
    assert ("not shown: " in "".join(rows)) == (columns < 160)
    assert ("formulation" in head) == (columns == 160)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("model", ["lenet", "mobilenet_v2", "googlenet"])
def test_sizes_of_convolutions_can_be_read_at_every_width(
    columns: int,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    googlenet: Result,
) -> None:
    graph = formed(build_model(model, 4, 10), StepForm("channels_last"))
    some = [
        replace(googlenet.tasks[0], spec=task.kernel.spec, role=task.kernel.role, count=task.count)
        for task in tasks(graph)
    ]
    monkeypatch.setenv("COLUMNS", str(columns))
    show_kernels(replace(googlenet, tasks=tuple(some)), None)
    _, _, *rows = lines_of(capsys)
    for row in rows[: len(some)]:
        task = some[int(row.split()[0]) - 1]
        channels = re.match(r"conv2d (c\d+ \d+x\d+ k\d+)", short_name(task.spec))
        assert channels is None or f" {channels[1]}" in row


def test_kernels_of_a_small_model_have_names_that_tell_them_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], googlenet: Result
) -> None:
    graph = formed(build_model("lenet", 4, 10), StepForm("channels_first"))
    some = [
        replace(googlenet.tasks[0], spec=task.kernel.spec, role=task.kernel.role, count=task.count)
        for task in tasks(graph)
    ]
    monkeypatch.setenv("COLUMNS", "80")
    show_kernels(replace(googlenet, tasks=tuple(some)), None)
    head, _, *rows = lines_of(capsys)
    named: dict[str, set[str]] = {}
    for row in rows[: len(some)]:
        reported = row[head.index("kernel") : head.index("role")].strip()
        task = some[int(row.split()[0]) - 1]
        named.setdefault(reported, set()).add(short_name(task.spec))
    assert [reported for reported, names in named.items() if len(names) > 1] == []


def test_a_column_that_is_the_same_in_each_row_is_dropped_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = (
        Column("kernel"),
        Column("cores", rank=9, differing=True),
        number("speed-up", rank=1),
    )
    write_table(
        columns, [("a" * 40, "all, 2 threads", "1" * 30), ("b" * 40, "all, 2 threads", "2")]
    )
    assert lines_of(capsys)[0].split() == ["kernel", "speed-up"]
    write_table(
        columns, [("a" * 40, "all, 2 threads", "1" * 30), ("b" * 40, "all, 4 threads", "2")]
    )
    assert lines_of(capsys)[0].split() == ["kernel", "cores"]
    write_table(columns, [("a", "all", "1"), ("b", "all", "2")])
    assert lines_of(capsys)[0].split() == ["kernel", "cores", "speed-up"]


@pytest.mark.parametrize("command", [["targets"], ["records", "list", str(SAMPLE.parent)]])
def test_rows_have_one_line_where_there_is_little_room(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(command) == 0
    rows = capsys.readouterr().out.partition("─\n")[2].partition("\nnot shown")[0].splitlines()
    assert len(rows) == (5 if command == ["targets"] else 1)


def test_a_kernel_without_an_untuned_time_says_why(
    googlenet: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = "crash: killed from outside by SIGKILL, 3 times"
    tasks_ = (replace(googlenet.tasks[5], default_failure=reported), googlenet.tasks[6])
    show_kernels(replace(googlenet, tasks=tasks_), None)
    lines = [line for line in lines_of(capsys) if "no untuned time" in line]
    assert lines == [f"{short_name(tasks_[0].spec)} {tasks_[0].role}: no untuned time: {reported}"]


def test_kernels_have_their_whole_specs_and_every_column_where_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = shutil.copytree(SAMPLE, tmp_path / "run")
    assert main(["records", "show", str(run), "--wide"]) == 0
    wide = lines_of(capsys)
    assert any("matmul:m=8,n=24,k=40" in line for line in wide)
    assert "formulation" in wide[0]
    assert main(["records", "show", str(run)]) == 0
    assert not any("matmul:m=8" in line for line in lines_of(capsys))
    assert main(["compare", str(run), str(run), "--wide"]) == 0
    assert "matmul:m=8,n=24,k=40" in capsys.readouterr().out
    # A command's --wide is its own.
    assert main(["records", "show", str(run)]) == 0
    assert not any("matmul:m=8" in line for line in lines_of(capsys))


def test_names_that_would_look_alike_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, other, alone = (f"{n}x{'9' * 40}+relu" for n in ("matmul 2", "matmul 3", "conv2d 2"))
    write_table((Column("kernel", least=24), number("x" * 68)), [(t, "") for t in (first, other)])
    reported = "".join(lines_of(capsys)[2:])
    assert reported.replace(" ", "") == (first + other).replace(" ", "")
    write_table((Column("kernel", least=24), number("x" * 68)), [(first, ""), (alone, "")])
    assert [line.strip() for line in lines_of(capsys)[2:]] == ["matmul…elu", "conv2d…elu"]


def test_the_verdict_of_a_comparison_stays_longer_than_the_count(
    googlenet: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "spec": task.spec, "role": task.role, "count": task.count, "first_ms": 120.0,
            "second_ms": 120.0, "ratio": 1.0, "ci": (0.977, 1.023), "verdict": "tie",
        }
        for task in googlenet.tasks
    ]  # fmt: skip
    step = {"first_ms": 1.0, "second_ms": 1.0, "ratio": 1.0, "ci": None, "verdict": "tie"}
    found = {
        "kind": "kernels", "warnings": [], "settings": [], "tasks": rows, "only_first": [],
        "only_second": [], "step": {"untuned": step, "tuned": step},
        **{side: {"run": "r", "trials": 1, "device": "d"} for side in ("first", "second")},
    }  # fmt: skip
    seen = []
    for columns in range(80, 121):
        monkeypatch.setenv("COLUMNS", str(columns))
        show_comparison(found)
        head = next(line for line in lines_of(capsys) if line.startswith("no."))
        seen.append(("better" in head, "count" in head))
        assert head.index("role") - head.index("kernel") >= 24
    assert set(seen) == {(False, False), (True, False), (True, True)}


def test_a_difference_has_short_names_and_one_thing_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["records", "diff", str(SAMPLE), str(SAMPLE)]) == 0
    shown = capsys.readouterr().out
    assert "matmul 8x24x40" in shown
    assert "weight_grad" in shown or "data_grad" in shown
    assert main(["records", "diff", str(SAMPLE), str(SAMPLE), "--wide"]) == 0
    assert "matmul:m=8,n=24,k=40" in capsys.readouterr().out
    assert main(["records", "pull", str(SAMPLE), "--store", str(tmp_path / "records")]) == 0
    assert "of 2 kernels from 1 run, 9 of them new" in capsys.readouterr().out


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["records", "show", str(SAMPLE)],
        ["records", "list", str(SAMPLE.parent)],
        ["records", "diff", str(SAMPLE), str(SAMPLE)],
        ["compare", str(SAMPLE), str(SAMPLE)],
        ["breakdown", str(SAMPLE)],
        ["models"],
        ["targets"],
        ["devices"],
        ["devices", "show", "local"],
    ],
    ids=" ".join,
)
def test_tables_fit(
    columns: int,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    main(arguments)
    shown = lines_of(capsys)
    rule = next(at for at, line in enumerate(shown) if line.startswith("─"))
    table = shown[rule - 1 :]
    end = next((at for at, line in enumerate(table) if not line.strip()), len(table))
    assert end > 2
    assert max(map(len, table[:end])) <= columns


@pytest.mark.parametrize("columns", WIDTHS)
def test_checks_of_a_machine_have_a_line_each_and_are_whole_where_asked(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = " ".join(f"word{n}" for n in range(30))
    check = Check(
        "package apache-tvm-ffi", "ok", found, "TVM; any other version crashes its search"
    )
    checks = [check, replace(check, name="Python"), replace(check, name="cmake", status="missing")]
    write_report(checks, True)
    table, _, fixes = capsys.readouterr().out.partition("\n\n")
    assert max(map(len, table.splitlines())) <= columns
    assert [line.split()[0] for line in table.splitlines()[2:5]] == ["package", "Python", "cmake"]
    assert found in fixes
    with_wide(lambda: write_report(checks, True))(wide=True)
    assert capsys.readouterr().out.count(found) == 4


@pytest.mark.parametrize("columns", WIDTHS)
def test_searches_and_profiles_fit(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    clusters = {
        name: {"cores": 4, "khz": 2_419_000} for name in ("little", "middle", "big", "prime")
    }
    point: dict[str, Any] = {
        "clusters": clusters, "threads": 16, "time_s": 0.01084, "energy_j": 1.05673, "celsius": 41.2,
        "ci": {"time_s": [0.01063, 0.01105], "energy_j": [1.0, 1.1]}, "rails": {}, "marks": [],
    }  # fmt: skip
    show_search(
        {
            "best": point, "points": {"least_energy_in_time": point}, "default": {**point, "clusters": None},
            "marks": [], "model_error": {}, "n_measured": 9, "space": 5036, "n_failed": 0, "emulated": False,
        },
        Path("logs/run"),
    )  # fmt: skip
    found = lines_of(capsys)
    assert "a step" in found[0]
    assert "10.8 ms" in found[2]
    assert max(map(len, found)) <= columns
    figures = {
        "time_s": 0.0086, "share": 0.211, "energy_j": 0.069, "deviation_j": 0.0025, "watts": 8.04,
        "busy": {"0": 4.03},
        "khz": {"denver": 2_035_200, "a57": 2_035_200}, "celsius": 36.2, "live_bytes": 2e8, "apart": True,
        "operator": "global_avg_pool", "role": "weight_grad", "calls": 112,
        "name": "a_layer.with.a_long.name conv2d",
    }  # fmt: skip
    show_profile(
        {
            "roles": [figures, {**figures, "time_s": 0.02, "role": "forward"}], "operators": [figures] * 30,
            "energy_j": 1.0, "deviation_j": 0.1, "step_s": 0.5, "steps": 10, "intervals": 100, "marks": [],
            "emulated": False,
        },
        Path("logs/run"),
    )  # fmt: skip
    found = lines_of(capsys)
    assert max(map(len, found)) <= columns
    assert [line.split()[1] for line in found[2:4]] == ["forward", "weight_grad"]


def test_columns_go_by_rank_and_long_cells_lose_their_middle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (
        Column("name", least=12),
        number("a", rank=2),
        number("b", rank=1),
        Column("why", least=10, prose=True),
    )
    rows = [("a" * 30 + "z" * 30, "1" * 50, "2" * 20, "some words to read " * 6)]
    monkeypatch.setenv("COLUMNS", "80")
    write_table(columns, rows)
    head, rule, *body = lines_of(capsys)
    assert head.split() == ["name", "b", "why"]
    assert len(rule) == 80
    assert "…" in body[0]
    assert body[0].startswith("aaaa")
    assert "2" * 20 in body[0]
    assert " ".join(body[:-1]).count("words") == 6
    assert body[-1] == "not shown: a; --wide shows every column"
    # A ranked column with nothing in it is not shown, and not told of.
    write_table(columns, [("a name", "-", "2", "why"), ("b", "", "3", "")])
    shown = lines_of(capsys)
    assert shown[0].split() == ["name", "b", "why"]
    assert len(shown) == 4
    # Where no terminal says how wide it is, lines are of 100 characters at most.
    monkeypatch.delenv("COLUMNS")
    write_table(columns, rows)
    assert max(map(len, lines_of(capsys))) <= 100
    # Numbers are never cut; names are where there is no other way.
    monkeypatch.setenv("COLUMNS", "80")
    write_table((Column("one"), number("two")), [("x" * 60, "1" * 60)])
    assert lines_of(capsys)[2].endswith("1" * 60)
    # Some characters are two wide.
    write_table((Column("device", least=6), number("n")), [("小米手机" * 19, "1")])
    row = lines_of(capsys)[2]
    assert len(row) + sum(letter > "\u3000" for letter in row) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.000 us"),
        (1.96e-7, "0.196 us"),
        (4e-9, "0.004 us"),
        (2.5e-8, "0.025 us"),
        (1.234e-6, "1.23 us"),
        (9.996e-4, "1.00 ms"),
        (9.994e-4, "999 us"),
        (0.0012345, "1.23 ms"),
        (0.0456, "45.6 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (83.25, "83.2 s"),
        (4321.0, "4320 s"),
    ],
)
def test_times_are_in_the_unit_in_which_they_read_best(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


def test_intervals_and_ratios_are_short() -> None:
    assert times_text((0.00098, 0.00102)) == "0.980 to 1.02 ms"
    assert times_text((0.000127, 192.0)) == "127 us to 192 s"
    assert times_text(None) == ""
    assert speedup_text(5.667, (3.66, 6.781)) == "5.67x (3.66-6.78)"
    assert speedup_text(1234.5, (1000.0, 2000.0)) == "1234x (1000-2000)"
    assert speedup_text(None) == "-"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (
            "conv2d:n=4,c=6,h=14,w=14,k=16,r=5,s=5,stride=2,pad=2,channels_last=1+bias.forward:n=4,c=16,s=100,relu=1",
            "conv2d c6 14x14 k16 5x5 s2+bias+relu",
        ),
        ("matmul:m=8,n=24,k=40", "matmul 8x24x40"),
        ("conv2d:n=1,c=9,h=7,w=7,k=9,r=3,s=3,stride=1x2,pad=1,groups=9", "conv2d c9 7x7 k9 3x3 s1x2 g9"),
        ("sgd:size=192", "sgd 192"),
        ("batch_norm:n=4,c=24,s=3136,epsilon_millionths=1000,relu6=1", "batch_norm c24 s3136+relu6"),
        ("expr:of a newer version", "expr:of a newer version"),
    ],
)  # fmt: skip
def test_short_names(spec: str, name: str) -> None:
    assert short_name(spec) == name


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "show", str(SAMPLE), "--json"]) == 0
    (*_, one) = json.loads(capsys.readouterr().out)["kernels"]
    assert one["spec"] == "matmul:m=8,n=24,k=40"
    assert {"formulation", "digest", "schedules", "trials", "default_ms", "best_ms"} <= one.keys()


def test_ratios_are_told_in_one_direction_and_with_one_name_of_the_default() -> None:
    better = {"ratio": 1.25, "ci": [1.2, 1.31], "verdict": "better"}
    reported = gain_text("time_s", "the best", "the default", better)
    assert reported == "time: the best is 1.25x as fast as the default (1.2 to 1.31): better"
    reported = gain_text("energy_j", "the best", "the default", {**better, "ci": None})
    assert reported.startswith(
        "energy: the best is 1.25x as energy-efficient as the default (one block"
    )
    # A comparison's ratio is of the first over the second: there the first is told of.
    compared = {"ratio": 0.5, "ci": [0.4, 0.8], "verdict": "first", "by": "energy"}
    assert (
        compared_text(("best", "default"), compared)
        == "energy: best is 2x as energy-efficient as default (1.25 to 2.5): best is better"
    )
    assert "infx" in compared_text(("a", "b"), {**compared, "ratio": 0.0, "ci": [0.0, 1.0]})
