"""Bad values are refused before a device is looked for."""

from pathlib import Path

import pytest

from autotune.cli.main import main
from autotune.devices import adb

SEARCH = ["cpu-config", "--model", "lenet"]
PROFILE = ["profile", "--model", "lenet"]
PROGRAM = ["cpu-config", "--command", "x", "--steps-from", "y"]


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["cpu-config", "--objective", "energi"], "did you mean 'energy'"),
        (["cpu-config", "--sampler", "rnd"], "tpe, nsga2, random, grid"),
        (["joint", "--objective", "energi", "--model", "lenet"], "did you mean 'energy'"),
        (["joint", "--model", "lenet", "--kernel-trials", "0"], "--kernel-trials is 0"),
        (["joint", "--model", "lenet", "--gpu-run", "nowhere"], "no run at"),
        (["cpu-config"], "--model, or --command"),
        (["cpu-config", "--model", "lennet"], "did you mean 'lenet'"),
        ([*SEARCH, "--optimizer", "adm"], "did you mean 'adam'"),
        ([*SEARCH, "--batch", "0"], "a batch of 0"),
        ([*SEARCH, "--classes", "0"], "classes"),
        ([*SEARCH, "--micro-batch", "3"], "--micro-batch 3 does not divide"),
        ([*SEARCH, "--input-shape", "3x"], "--input-shape"),
        ([*SEARCH, "--run", "nowhere"], "no run at"),
        ([*SEARCH, "--deadline", "5x"], "--deadline '5x' is not a quantity"),
        ([*SEARCH, "--energy-budget", "5x"], "--energy-budget '5x' is not a quantity"),
        ([*SEARCH, "--memory-limit", "x"], "'x' is not a size"),
        ([*SEARCH, "--space", "coars"], "did you mean 'coarse'"),
        ([*SEARCH, "--meter", "batery"], "did you mean 'battery'"),
        ([*SEARCH, "--meter", "none", "--objective", "energy"], "needs joules"),
        ([*SEARCH, "--storage", "foo:x"], "sqlite:///FILE, journal:FILE"),
        ([*SEARCH, "--storage", "foo://x"], "sqlite:///FILE, journal:FILE"),
        ([*SEARCH, "--storage", "journal:/nosuch/x.log"], "there is no folder /nosuch"),
        ([*SEARCH, "--storage", "sqlite:////nosuch/x.db"], "there is no folder /nosuch"),
        ([*SEARCH, "--storage", f"journal:{__file__}"], "is not a journal of a study"),
        ([*SEARCH, "--storage", f"sqlite:///{__file__}"], "hint"),
        ([*SEARCH, "--max-temperature", "9999"], "--max-temperature is 9999"),
        ([*SEARCH, "--max-temperature", "-500"], "--max-temperature is -500"),
        ([*SEARCH, "--trials", "0"], "--trials is 0"),
        ([*PROGRAM, "--per-operator"], "--per-operator needs --model"),
        (["profile", "--model", "lennet"], "did you mean 'lenet'"),
        ([*PROFILE, "--optimizer", "adm"], "did you mean 'adam'"),
        ([*PROFILE, "--run", "nowhere"], "no run at"),
        ([*PROFILE, "--meter", "batery"], "did you mean 'battery'"),
        ([*PROFILE, "--cpus", "big"], "--cpus 'big' is not a list of cores"),
        ([*PROFILE, "--threads", "0"], "--threads is 0"),
        ([*PROFILE, "--point", "knee"], "--point goes with --of"),
        ([*PROFILE, "--of", "nowhere"], "no run at nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_value_is_told_before_a_device_is_looked_for(
    words: list[str],
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def looked_for() -> None:
        raise AssertionError("a device was looked for")

    monkeypatch.setattr(adb, "start_server", looked_for)
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert reported in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
