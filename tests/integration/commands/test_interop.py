"""What docs/interop.md tells of other programs: its snippets run, and these programs see what it says."""

from __future__ import annotations

import csv
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^    (autotune .*)$", DOCUMENT, re.MULTILINE)
ARGUMENTS = (
    "--emulate", "meizu-16t", "--objective", "pareto", "--deadline", "20s", "--trials", "4", "--blocks", "1",
    "--no-model-start", "--sampler", "random",
)  # fmt: skip


def autotune(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "autotune", *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of kernels, a search, and the files that the page's commands write."""
    here = tmp_path_factory.mktemp("interop")
    shutil.copytree(ROOT / "logs" / "samples" / "cpu-matmul", here / "logs" / "kernels")
    done = autotune("cpu-config", *ARGUMENTS, "--logs", "made", cwd=here)
    assert done.returncode == 0, done.stderr
    (made,) = (here / "made").iterdir()
    made.rename(here / "logs" / "search")
    assert len(COMMANDS) == 4
    for command in COMMANDS:
        done = autotune(*command.split()[1:], cwd=here)
        assert done.returncode == 0, done.stderr
    return here


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 6


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_each_snippet_runs_without_our_code(folder: Path, number: int) -> None:
    snippet = SNIPPETS[number]
    if "import pandas" in snippet and find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    assert "autotune" not in snippet.replace("autotune report", "")
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout or "enqueue_trial" in snippet


def events(folder: Path, run: str) -> list[dict[str, Any]]:
    lines = (folder / "logs" / run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_csv_has_every_figure_of_a_search(folder: Path) -> None:
    with (folder / "points.csv").open(newline="", encoding="utf-8") as file:
        *rows, own = csv.DictReader(file)
    trials = [event for event in events(folder, "search") if event["event"] == "trial"]
    assert len(rows) == len(trials) == 4
    for row, trial in zip(rows, trials, strict=True):
        assert row["time_s"] == str(trial["figures"]["time_s"])
        for cluster, setting in trial["configuration"]["clusters"].items():
            assert row[f"{cluster}_cores"] == str(setting["cores"])
            mhz = setting["khz"] / 1000 if setting["khz"] else ""
            assert row[f"{cluster}_mhz"] == str(mhz)
    result = json.loads((folder / "logs" / "search" / "result.json").read_text(encoding="utf-8"))
    (best,) = (row for row in rows if "best" in row["points"].split())
    assert best["again_time_s"] == str(result["best"]["time_s"])
    assert (own["points"], own["time_s"]) == ("default", str(result["default"]["time_s"]))


def test_csv_has_every_kernel_with_its_interval(folder: Path) -> None:
    with (folder / "kernels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    result = json.loads((folder / "logs" / "kernels" / "result.json").read_text(encoding="utf-8"))
    assert [(r["name"], r["tuned_ms"], r["speedup_low"], r["speedup_high"]) for r in rows] == [
        (t["name"], str(t["tuned_ms"]), *map(str, t["ci"])) for t in result["tasks"]
    ]


def test_t4_is_as_its_schema_says(folder: Path) -> None:
    for name, run, kinds in (
        ("kernels.json", "kernels", ("default", "trial")),
        ("points.json", "search", ("trial",)),
    ):
        reported = json.loads((folder / name).read_text(encoding="utf-8"))
        assert re.fullmatch(r"\d+\.\d+\.\d+", reported["schema_version"])
        recorded = [event for event in events(folder, run) if event["event"] in kinds]
        assert len(reported["results"]) == len(recorded) > 0
        for one, event in zip(reported["results"], recorded, strict=True):
            assert {"configuration", "times", "invalidity", "correctness"} <= set(one)
            assert isinstance(one["timestamp"], str)
            assert one["correctness"] == (event["status"] == "ok")
            assert all(isinstance(value, float) for value in one["times"]["runtimes"])
            names = {measured["name"] for measured in one["measurements"]}
            assert set(one["objectives"]) <= names or not one["correctness"]
            for measured in one["measurements"]:
                assert isinstance(measured["value"], int | float)
                assert isinstance(measured["unit"], str)
            words = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
            assert one["invalidity"] in words
            if run == "search":
                late = event["figures"]["time_s"] > 20
                assert one["invalidity"] == ("constraints" if late else "correct")


@pytest.mark.parametrize("option", ["--csv", "--t4"])
def test_what_has_no_table_is_refused_in_a_line(folder: Path, tmp_path: Path, option: str) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("run.json", "database_workload.json"):
        shutil.copy(folder / "logs" / "kernels" / name, begun)
    other = tmp_path / "other"
    other.mkdir()
    about = json.loads((begun / "run.json").read_text(encoding="utf-8"))
    (other / "run.json").write_text(json.dumps({**about, "request": {"profile": {}}}))
    nowhere = tmp_path / "nowhere" / "file"
    for run, file in (
        (begun, "x"), (other, "x"), (folder, "x"), (folder / "logs" / "kernels", nowhere),
    ):  # fmt: skip
        done = autotune("report", run, option, file, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "x").exists()


@pytest.fixture
def dashboard(folder: Path) -> Iterator[str]:
    pytest.importorskip("optuna_dashboard")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["sqlite:///logs/search/study.db", "--port", str(port)]
    program = "from optuna_dashboard._cli import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", program, *words], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            with suppress(OSError), urllib.request.urlopen(f"{url}/api/studies"):
                break
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


def test_the_dashboard_shows_names_units_and_the_system_s_own_choice(dashboard: str) -> None:
    def get(path: str) -> Any:
        with urllib.request.urlopen(dashboard + path) as answer:
            return json.load(answer)

    (summary,) = get("/api/studies")["study_summaries"]
    name = "cpu-config pareto emulated step on meizu-16t, deadline 20s"
    assert summary["study_name"].rpartition(" ")[0] == name
    study = get(f"/api/studies/{summary['study_id']}")
    assert study["objective_names"] == ["time of a step (s)", "energy of a step (J)"]
    names = {parameter["name"] for parameter in study["union_search_space"]}
    assert names <= {"little cores", "little MHz", "big cores", "big MHz"}
    reported = {p["name"]: p["param_external_value"] for t in study["trials"] for p in t["params"]}
    assert float(reported["big MHz"]) >= 710.4
    own = [
        trial
        for trial in study["trials"]
        if any(attribute["key"] == "default" for attribute in trial["user_attrs"])
    ]
    assert [(trial["params"], len(trial["values"])) for trial in own] == [([], 2)]
