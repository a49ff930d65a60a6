"""The published traces as a bench: settings are configurations, and a search over them works as over a table."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.cli.main import main
from autotune.cli.search_commands.replay import replay
from autotune.errors import UsageError
from autotune.power import meizu_traces
from autotune.studies.replay.replay import read_paper_table, search
from autotune.studies.replay.traces import CLUSTERS, NAMES, read_traces
from autotune.studies.run.study import StudyRequest
from autotune.studies.space.objective import NO_LIMITS, Objective

TRACES = Path(
    os.environ.get("AUTOTUNE_MEIZU_TRACES", Path(__file__).parents[4] / "shared/data/meizu_traces")
)
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"the published raw traces are not at {TRACES}"
)
WINDOW_S, START_MS = 40.0, 1_618_000_000_000


def write(
    folder: Path, step_s: float, watts: float, busy: tuple[int, ...], *, battery: float = 0.5
) -> None:
    """A setting's folder in the archive's form: Alexnet at batch size 16, so many watts over USB at 5 V."""
    blocks = []
    for n in range(int(WINDOW_S * 2) + 10):
        ticks = {cpu: 50 * n if cpu in busy else 10 * n for cpu in range(8)}
        cores = "".join(f"cpu{cpu} {t} 0 0 {50 * n - t} 0 0 0 0 0 0\n" for cpu, t in ticks.items())
        # Not one value, so that nothing looks cut off.
        amperes = round(1e6 * watts / 5) + n
        blocks.append(
            f"NEW DATA {START_MS + 500 * n}\nusb_current {amperes}\nusb_voltage 5000000\n"
            f"battery_current {round(-1e6 * battery / 4)}\nbattery_voltage 4000000\n\nsystem status\n{cores}"
        )
    files = {
        "usage_monitor/usage_monitor_Alexnet.result": "".join(blocks),
        "train_stamp/Alexnet/train_stamp_16.result": (
            f"Begin training : {START_MS}\nEnd trainning : {START_MS + round(1e3 * WINDOW_S)}\n"
        ),
        "train_bench/train_bench_Alexnet.result": (
            f"Training latency of Alexnet is : {1e3 * step_s:.6f} ms (batchsize is 16)\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)


STATUS = "Name:\trunTrainDemo.ou\nVmHWM:\t   75532 kB\nVmRSS:\t   72968 kB\n"


def without_power(folder: Path, *, of: str = "") -> None:
    """Takes the power readings out of a setting's blocks, or those of a kind; adds the trainer's memory."""
    monitor = folder / "usage_monitor" / "usage_monitor_Alexnet.result"
    lines = monitor.read_text().splitlines(keepends=True)
    kept = [
        line
        for line in lines
        if not (line.startswith(("usb_", "battery_")) and line.startswith(of))
    ]
    monitor.write_text("".join(kept).replace("system status\n", f"system status\n{STATUS}"))


def archive(folder: Path) -> Path:
    write(folder / "X_Core_f0", 2.0, 2.0, (4, 5, 6, 7))
    write(folder / "X_Core_80", 4.0, 1.2, (7,))
    write(folder / "X_Core_0f", 8.0, 1.5, (0, 1, 2, 3))
    write(folder / "X_Core_01", 25.0, 0.2, (0,), battery=0.0)
    write(folder / "X_Freq_1708800", 2.5, 1.8, (4, 5, 6, 7))
    write(folder / "X_Freq_710400", 6.0, 0.2, (4, 5, 6, 7))
    return folder


def test_settings_are_configurations_and_joules_are_usb_s_and_the_battery_s(tmp_path: Path) -> None:
    table = read_traces(archive(tmp_path), "alexnet", 16)
    found = {c.text(NAMES): f for c, f in table.figures().items()}
    assert set(found) == {
        "4 big", "1 big", "4 little", "1 little", "4 big 1709 MHz", "4 big 710 MHz"
    }  # fmt: skip
    assert found["4 big"].time_s == pytest.approx(2.0)
    assert found["4 big"].energy_j == pytest.approx(2.0 * 2.5, rel=0.001)
    assert not table.marks
    alone = read_traces(tmp_path, "Alexnet", 16, usb_alone=True)
    assert {c.text(NAMES): f for c, f in alone.figures().items()}["4 big"].energy_j == (
        pytest.approx(2.0 * 2.0, rel=0.001)
    )


@pytest.mark.parametrize("objective", ["latency", "energy", "pareto"])
def test_a_search_over_traces_finds_what_was_recorded(tmp_path: Path, objective: Objective) -> None:
    table = read_traces(archive(tmp_path), "alexnet", 16)
    space = table.space()
    assert space.size == 6
    for model in (True, False):
        request = StudyRequest(space, objective, NO_LIMITS, space.size, model=model)
        found = search(table, request)
        assert found.measurements == len(found.trials) <= 6
        assert found.trials[-1].configuration in found.goal
        names = {c.text(NAMES) for c in found.goal}
        if objective == "latency":
            assert names == {"4 big"}
        if objective == "energy":
            assert names == {"4 big 710 MHz"}


def test_traces_without_power_readings_are_read_and_their_energy_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path)
    for setting in tmp_path.iterdir():
        without_power(setting)
    replay(tmp_path, json=True)
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) == 6
    for run in runs:
        assert (run["usb_j"], run["total_j"], run["energy_missing"]) == (None, None, True)
        assert (run["duration_s"], run["memory_bytes"]) == (WINDOW_S, 75532 * 1024)
    busy = {run["setting"]: run["cores_busy"] for run in runs}
    # The cores that train are busy all of the time, the others for a fifth of it.
    assert busy["X_Core_f0"] == pytest.approx(4 + 4 * 0.2, rel=0.01)
    replay(tmp_path)
    assert "energy is missing of 6 of 6 runs: no power readings" in capsys.readouterr().out
    with pytest.raises(UsageError, match="missing of all 6 configurations") as caught:
        replay(tmp_path, network="Alexnet", batch=16, objective="energy")
    assert caught.value.hint == "search with --objective latency"
    replay(tmp_path, network="Alexnet", batch=16, objective="latency", json=True)
    reported = json.loads(capsys.readouterr().out)
    assert reported["goal"][0]["clusters"]["big"]["cores"] == 4
    assert len(reported["energy_missing"]) == 6
    assert all(one["mark"] == "no power readings" for one in reported["marked"])
    assert "energy is missing" in reported["device"]["emulated"]


def test_energy_is_missing_of_those_only_that_have_no_readings(tmp_path: Path) -> None:
    archive(tmp_path)
    without_power(tmp_path / "X_Core_f0")
    without_power(tmp_path / "X_Core_0f", of="battery_")
    table = read_traces(tmp_path, "alexnet", 16)
    found = {c.text(NAMES): f.energy_j for c, f in table.figures().items()}
    assert [name for name, joules in found.items() if joules is None] == ["4 little", "4 big"]
    assert found["1 big"] is not None
    assert "energy is missing of 2 of 6 settings" in table.device["emulated"]
    over_usb = read_traces(tmp_path, "alexnet", 16, usb_alone=True)
    missing = {c.text(NAMES) for c, f in over_usb.figures().items() if f.energy_j is None}
    assert missing == {"4 big"}


def test_a_search_for_energy_leaves_out_what_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path)
    without_power(tmp_path / "X_Core_f0")
    for objective in ("pareto", "energy"):
        replay(tmp_path, network="Alexnet", batch=16, objective=objective, json=True)
        reported = json.loads(capsys.readouterr().out)
        assert reported["configurations"] == 5
        assert [one["clusters"]["big"]["cores"] for one in reported["energy_missing"]] == [4]
        assert reported["goal"]
    replay(tmp_path, network="Alexnet", batch=16)
    assert "1 of 6 configurations are left out: no power readings" in capsys.readouterr().out
    replay(tmp_path, network="Alexnet", batch=16, objective="latency")
    assert "left out" not in capsys.readouterr().out


MONITOR = "usage_monitor/usage_monitor_Alexnet.result"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (MONITOR, lambda path: path.symlink_to("/dev/zero")),
        (MONITOR, os.mkfifo),
        (MONITOR, lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 3 << 30)),
        (MONITOR, lambda path: path.write_text(f"NEW DATA 1\ncpu0 {'9' * 5000} 0 0 0 0 0 0 0\n")),
        (MONITOR, lambda path: path.write_text(f"NEW DATA {'9' * 5000}\n")),
        (MONITOR, lambda path: path.write_text("NEW DATA 1\n" * 300_000)),
        ("train_stamp/Alexnet/train_stamp_16.result",
         lambda path: path.write_text(f"Begin training : {'9' * 400}\nEnd training : 2\n")),
        ("train_stamp/Alexnet/train_stamp_abc.result", lambda path: path.write_text("")),
        ("train_bench/train_bench_Alexnet.result", os.mkfifo),
    ],
)  # fmt: skip
@pytest.mark.timeout(30)
def test_traces_that_are_damaged_or_hostile_are_one_line(
    tmp_path: Path, name: str, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path)
    file = tmp_path / "X_Core_f0" / name
    file.unlink(missing_ok=True)
    change(file)
    for words in ([], ["--network", "Alexnet", "--batch", "16"]):
        assert main(["replay", str(tmp_path), *words]) in (1, 2)
        reported = capsys.readouterr().err.splitlines()
        assert len(reported) <= 2
        assert reported[0].startswith("autotune: error: ")
        assert "int_max_str_digits" not in reported[0]


def table_of(folder: Path, *rows: str) -> Path:
    """A table of configurations."""
    table = folder / "table.csv"
    head = "cluster,cores,big_freq_ghz,small_freq_ghz,time_s,energy_j"
    table.write_text("\n".join([head, *rows]) + "\n")
    return table


def test_little_cores_are_small_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported = []
    for word in ("small", "little"):
        table = table_of(tmp_path, "big,2,2,1,1,1", f"{word},2,2,1,3,0.5", "hybrid,4,2,1,2,2")
        assert main(["replay", str(table), "--json"]) == 0
        reported.append(capsys.readouterr().out)
    assert reported[0] == reported[1]
    table = table_of(tmp_path, "middle,2,2,1,1,1")
    assert main(["replay", str(table)]) == 2
    assert "'middle' is no cluster" in capsys.readouterr().err


@pytest.mark.parametrize(
    "cores", ["99999999999999999999", "1000000000", "0", "-1", "1e3", "9" * 5000]
)
def test_a_table_has_cores_that_a_phone_may_have(
    tmp_path: Path, cores: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, f"big,{cores},2,1,1,1", "small,2,2,1,1,1")
    assert main(["replay", str(table)]) == 2
    reported = capsys.readouterr().err
    assert "line 2 is not a configuration" in reported
    assert "hint: cluster is big, small, little or hybrid" in reported
    assert "int_max_str_digits" not in reported


@pytest.mark.parametrize(
    "row",
    [
        f"big,2,{ghz},1,{seconds},{joules}"
        for ghz, seconds, joules in (
            ("1e300", 1, 1), ("101", 1, 1), ("1e-300", 1, 1), (2, "1e300", 1), (2, "1e-300", 1),
            (2, 1, "1e300"), (2, 1, "1e-300"), (2, "9" * 5000, 1), (2, "nan", 1),
        )
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_figures_that_no_phone_has_are_one_line(
    tmp_path: Path, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(tmp_path, row, "small,2,2,1,1,1")
    assert main(["replay", str(table)]) == 2
    reported, _ = capsys.readouterr().err.splitlines()
    assert "line 2 is not a configuration" in reported
    assert len(reported) < 300


@pytest.mark.parametrize("rows", [100_001, 3_000_000])
def test_a_table_of_too_many_rows_is_refused_early(tmp_path: Path, rows: int) -> None:
    table = table_of(tmp_path, *["big,2,2,1,1,1"] * rows)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"more than 100000 configurations|larger than 16 MiB"):
            read_paper_table(table)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_blocks_of_a_time_stamp_alone_leave_what_lies_beside_them(tmp_path: Path) -> None:
    for name in ("X_Core_f0", "X_Freq_710400"):
        write(tmp_path / name, 2.0, 2.0, (4, 5, 6, 7))
        monitor = tmp_path / name / "usage_monitor" / "usage_monitor_Alexnet.result"
        lines = monitor.read_text().splitlines(keepends=True)
        monitor.write_text("".join(line for line in lines if line.startswith("NEW DATA")))
        processed = tmp_path / name / "processed_data" / "Alexnet"
        processed.mkdir(parents=True)
        (processed / "performance_Alexnet.csv").write_text(
            ",batchsize,VIRT,RES,SHR,cpuUsage_train,cpuUsage_infer\n1,16.0,88.0,67.0,0.0,247.0,\n2,x,,,,,\n"
        )
    (run,) = meizu_traces.runs(tmp_path / "X_Core_f0")
    assert (run.duration_s, run.step_s) == (WINDOW_S, 2.0)
    assert (run.usb_j, run.total_j, run.saturated) == (None, None, "")
    assert (run.memory_bytes, run.cores_busy) == (67 << 20, 2.47)
    # Which cores worked is told of one of them only.
    table = read_traces(tmp_path, "alexnet", 16)
    assert [c.text(NAMES) for c in table.figures()] == ["4 big"]
    assert [f.memory_bytes for f in table.figures().values()] == [67 << 20]
    assert "left out" in table.device["emulated"]


def test_a_slip_is_told_with_what_there_is(tmp_path: Path) -> None:
    archive(tmp_path)
    with pytest.raises(UsageError, match="no run of vgg at batch size 16") as caught:
        read_traces(tmp_path, "vgg", 16)
    assert caught.value.hint == "it has Alexnet 16"
    (tmp_path / "X_Core_80").rename(tmp_path / "X_other")
    with pytest.raises(UsageError, match="its name does not say which cores or clocks"):
        read_traces(tmp_path, "alexnet", 16)
    (tmp_path / "X_other").rename(tmp_path / "Y_Core_f0")
    with pytest.raises(UsageError, match="another folder has 4 big too"):
        read_traces(tmp_path, "alexnet", 16)
    with pytest.raises(UsageError, match="needs --network and --batch"):
        replay(tmp_path, network="alexnet")
    with pytest.raises(UsageError, match="is not a folder of traces"):
        replay(Path(__file__).parents[2] / "data" / "meizu16t_alexnet_b16.csv", usb_alone=True)


def test_cores_that_were_left_to_the_system_must_be_told_by_the_readings(tmp_path: Path) -> None:
    write(tmp_path / "X_Freq_710400", 6.0, 0.4, ())
    with pytest.raises(UsageError, match="do not show which cores worked"):
        read_traces(tmp_path, "alexnet", 16)


@needs_traces
def test_of_the_published_traces_the_battery_turns_the_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    best = []
    for usb_alone in (False, True):
        replay(TRACES, objective="energy", network="Alexnet", batch=16, usb_alone=usb_alone, json=True)  # fmt: skip
        reported = json.loads(capsys.readouterr().out)
        assert reported["configurations"] == 2
        # Four big cores in both, and the meter at its port's limit.
        assert [c["clusters"]["big"]["cores"] for c in reported["marked"]] == [4, 4]
        assert all("saturated" in c["mark"] for c in reported["marked"])
        best.append(reported["goal"][0]["clusters"]["big"]["khz"])
    # USB alone favours what is fastest, at the highest clock; what the battery gave turns that.
    assert best == [1708800, None]


@needs_traces
def test_every_published_run_is_of_four_big_cores() -> None:
    for network, batch in (("Alexnet", 1), ("GoogLenet", 32), ("Lenet", 4)):
        table = read_traces(TRACES, network, batch)
        assert {c.text(NAMES) for c in table.figures()} == {"4 big", "4 big 1709 MHz"}
    assert [len(cluster.cpus) for cluster in CLUSTERS] == [4, 4]
