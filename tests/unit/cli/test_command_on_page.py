"""The command that made a run stands on its page."""

import json
import shutil
from pathlib import Path

from autotune.cli.commands.report import report
from autotune.cli.main import main

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"


def test_the_command_line_stands_on_the_page(tmp_path: Path) -> None:
    run = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    command = "autotune kernels --op matmul:m=8,n=24,k=40 --trials 9 --logs '<b>a b</b>'"
    (run / "run.json").write_text(json.dumps({**about, "command": command}))
    assert report(run) == 0
    html = (run / "report.html").read_text()
    reported = "autotune kernels --op matmul:m=8,n=24,k=40 --trials 9 --logs &#x27;&lt;b&gt;a b&lt;/b&gt;&#x27;"
    assert f'<th scope="row">command line</th><td>{reported}</td>' in html
    # A run of before has none.
    (run / "run.json").write_text(json.dumps(about))
    assert report(run) == 0
    assert "command line" not in (run / "report.html").read_text()


def test_a_comparison_has_the_commands_of_both_runs_and_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run = Path(shutil.copytree(SAMPLE, tmp_path / name))
        about = json.loads((run / "run.json").read_text())
        about["command"] = f"autotune kernels --op matmul:m=8,n=24,k=40 --logs {name}"
        (run / "run.json").write_text(json.dumps(about))
    words = [
        "compare",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "--html",
        str(tmp_path / "c.html"),
    ]
    assert main(words) == 0
    html = (tmp_path / "c.html").read_text()
    for name, reported in (
        ("first: command line", "autotune kernels --op matmul:m=8,n=24,k=40 --logs a"),
        ("second: command line", "autotune kernels --op matmul:m=8,n=24,k=40 --logs b"),
        ("compared by", " ".join(["autotune", *words])),
    ):
        assert f'<th scope="row">{name}</th><td>{reported}</td>' in html
