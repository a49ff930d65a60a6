"""The page of a kernel run: ended, interrupted, of several devices, of damaged records."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pages import bare, plot_of, plots

from autotune.cli.commands.report import report
from autotune.cli.main import main
from autotune.errors import RecordError, UsageError
from autotune.records import read_run
from autotune.report.pages.kernel_history import histories, kernels_so_far, step_history

SAMPLE = Path(__file__).parents[3] / "logs" / "samples" / "cpu-matmul"
EVIL = "<script>alert('x')</script>"
FORWARD = "matmul_forward_m8n24k40"


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


def write(path: Path, found: list[dict[str, Any]]) -> None:
    (path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in found))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "run"))


def html_of(run: Path) -> str:
    assert report(run) == 0
    return (run / "report.html").read_text()


def test_the_best_so_far_of_a_kernel_and_of_the_step() -> None:
    def trial(task: str, *samples: float) -> dict[str, Any]:
        return {
            "event": "trial", "task": task, "status": "ok" if samples else "run_error",
            "samples_s": list(samples),
        }  # fmt: skip

    reported = [
        {**trial("a", 4.0, 6.0, 5.0), "event": "default"},
        trial("a"),
        trial("b", 8.0),
        trial("a", 2.0),
        trial("a", 3.0),
        trial("b", 1.0),
    ]
    found = histories(reported)
    assert found["a"].default_s == 5.0
    assert found["a"].best() == [(0, 5.0), (3, 2.0)]
    # `b` has no default: the step is known from its first valid trial on.
    assert found["b"].best() == [(2, 8.0), (5, 1.0)]
    assert step_history(found, {"a": 2, "b": 1}) == [(2, 18.0), (3, 12.0), (5, 5.0)]


def test_the_page_of_a_run_is_whole_and_loads_nothing(run: Path) -> None:
    html = html_of(run)
    # The step's history, each kernel's, speed-ups, roles, roles and operators.
    assert len(plots(html)) == 5
    assert "2 of 3 kernels keep the untuned default" in html
    assert "11.5 to 31.2" in html
    assert all(f'download="{name}"' in html for name in ("kernels.csv", "trials.csv", "run.json"))
    assert "has not ended" not in html


def test_an_interrupted_run_is_shown_as_far_as_it_came(run: Path) -> None:
    whole = events(run)
    (run / "result.json").unlink()
    trials = [n for n, event in enumerate(whole) if event["event"] == "trial"]
    write(run, whole[: trials[4]])
    html = html_of(run)
    assert "has not ended: 4 of" in html
    assert f"autotune kernels --resume {run}" in html
    assert len(plots(html)) == 5
    assert 'download="result.json"' not in html
    found = read_run(run)
    (forward,) = [t for t in kernels_so_far(found.about, found.events).tasks if t.name == FORWARD]
    assert (forward.trials, forward.valid, forward.digest) == (4, 4, "b71d834fb930b1d2")
    assert forward.tuned_ms == pytest.approx(0.000168849574)
    assert forward.ci is None


def test_a_kernel_without_a_time_of_its_default_has_no_speed_up_over_that(run: Path) -> None:
    """The first candidate's time stood for the default's."""
    reported = events(run)
    (default,) = [e for e in reported if e["event"] == "default" and e["task"] == FORWARD]
    default |= {"status": "timeout", "samples_s": [], "message": "too slow"}
    write(run, reported)
    (run / "result.json").unlink()
    html = html_of(run)
    assert "1 of 3 kernels, whose untuned default has no time, are left out" in html
    assert "1 matmul forward" not in plot_of(html, "Best so far of each kernel")


def test_a_run_with_no_time_yet_has_no_page(run: Path) -> None:
    (run / "result.json").unlink()
    write(run, [{"event": "started", "time": 1.0, "trials": 9}])
    with pytest.raises(UsageError, match="nothing was measured yet") as caught:
        report(run)
    assert f"autotune kernels --resume {run}" in caught.value.hint
    assert not (run / "report.html").exists()


def test_devices_heat_clocks_and_failures_are_shown(run: Path) -> None:
    found = events(run)
    trials = [event for event in found if event["event"] == "trial"]
    for number, event in enumerate(trials):
        clock = {"name": "big", "cpus": "4-7", "khz": 2e6, "cap_khz": 2e6, "highest_khz": 2e6}
        seen = {"celsius": 30.0 + number, "zone": EVIL, "online": "", "cpus": "", "clocks": [clock]}
        event.update(serial=f"phone {number % 2}", conditions=[seen, seen])
    trials[-1].update(status="wrong_result", samples_s=[], message=f"{EVIL}\nmore")
    write(run, found)
    html = html_of(run)
    drawn = plots(html)
    assert len(drawn) == 7
    heat, clocks = drawn[5:]
    assert heat.count("<polyline") == clocks.count("<polyline") == 2
    assert "wrong result" in html
    assert html.count("phone 0") >= 2
    devices = re.search(r"<h2>Devices</h2>.*?</section>", html, re.DOTALL)
    assert devices is not None
    row = '<td>phone 1</td><td class="number">4</td><td class="number">0</td>'
    assert row in bare(devices[0])
    assert '<td class="number" data-of="trials">4</td>' in devices[0]


def test_damaged_records_are_one_clear_error(run: Path) -> None:
    (run / "result.json").write_text('{"tasks": [{}]}')
    with pytest.raises(RecordError, match="is damaged"):
        report(run)


def test_a_page_that_cannot_be_written_is_told(run: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        report(run, run / "nowhere" / "page.html")


def test_a_step_that_was_measured_stands_beside_what_was_predicted(run: Path) -> None:
    assert "not; the step is predicted only" in html_of(run)
    content = json.loads((run / "result.json").read_text())
    sides = {
        "untuned": {"ms": 8.0, "ci_ms": [7.5, 8.5], "tuned_is_faster": 4.0, "ci": [3.5, 4.5]},
        "tuned": {"ms": 2.0, "ci_ms": None, "tuned_is_faster": 1.0, "ci": None},
        "pytorch": None,
    }
    content["measured_step"] = {
        **sides, "blocks": 5, "threads": 2, "left_out": {"pytorch": f"PyTorch {EVIL}"},
    }  # fmt: skip
    (run / "result.json").write_text(json.dumps(content))
    html = html_of(run)
    assert "8.00 ms (tuned is 4x as fast, 3.5-4.5)" in html
    assert "tuned, predicted" in html
    assert "tuned, measured" in html
    assert "not: PyTorch &lt;script&gt;" in html
    for wrong in (5, {**content["measured_step"], "untuned": {"ms": "x"}}, {"tuned": None}):
        (run / "result.json").write_text(json.dumps({**content, "measured_step": wrong}))
        with pytest.raises(RecordError, match="is damaged"):
            report(run)


def test_an_export_of_figures_is_the_reports_table(run: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    assert main(["report", str(run), "--csv", str(one)]) == 0
    assert main(["export", str(run), "--csv", str(other)]) == 0
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_text().splitlines()) == 4
    assert main(["export", str(run)]) == 2
    assert main(["export", "--csv", str(other)]) == 2


def test_times_of_pages_have_the_units_of_the_terminal(run: Path, tmp_path: Path) -> None:
    html = html_of(run)
    for reported in ("6.10 us", "0.196 us"):
        assert f">{reported}</td>" in html
    assert main(["compare", str(run), str(run), "--html", str(tmp_path / "both.html")]) == 0
    assert ">0.196 us</td>" in (tmp_path / "both.html").read_text()
