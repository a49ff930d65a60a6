"""What every test module has."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import nursery
import pytest
import warm
from hypothesis import settings

_CLOCKS = Path("/sys/devices/system/cpu/cpufreq")
_INTEGRATION = Path(__file__).with_name("integration")

# Last, since one program there has the name of a package: transformers.py.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As of a job in the background: the programs that tests start would not hear Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # As under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Files of tests run at the same time, so that an example may take longer than it does alone.
settings.register_profile("beside others", deadline=None)
settings.load_profile("beside others")

nursery.install(warm.workers)

# pytest loads readline, which sets it: tables would be narrower where tests run in several processes.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# Tests start hundreds of processes: they keep what Python has compiled of us, as a user's do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Threads of NumPy and PyTorch wait for work asleep. By default they look for it all the time, and tests that run at
# the same time take up to three times as long.
os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}

# Nothing of a test is kept in the user's own folder, or found there.
os.environ["AUTOTUNE_OPENCL_PROGRAMS"] = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="more cases of what the tests try a few cases of"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _INTEGRATION in item.path.parents and not item.get_closest_marker("quick"):
            item.add_marker(pytest.mark.slow)
    if config.getoption("--exhaustive"):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


@pytest.fixture
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether to try more cases than tell the kinds apart."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture(scope="module", autouse=True)
def _own_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules run at the same time, and each holds this host as its own, unless it could set its clocks."""
    if any(os.access(clock, os.W_OK) for clock in _CLOCKS.glob("policy*/scaling_max_freq")):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
