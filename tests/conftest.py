"""What every test module has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _own_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules run at the same time, and each holds this host as its own: of a user's runs one would wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
