"""Lists of cores as the kernel writes them, and files as a shell gives them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.devices.local import LocalDevice
from autotune.devices.topology import cpu_list, cpu_list_text
from autotune.tracker.link import TrackerLink

NAMES = st.text(
    st.characters(blacklist_characters="/\0\n*?[]\\", blacklist_categories=("Cs", "Cc")),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", ".."))


@given(st.sets(st.integers(0, 127)))
def test_a_list_of_cores_reads_back(cpus: set[int]) -> None:
    assert cpu_list(cpu_list_text(tuple(cpus))) == tuple(sorted(cpus))
    assert cpu_list(" ".join(map(str, cpus))) == tuple(sorted(cpus))


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(NAMES, st.binary(max_size=200).map(lambda b: b.replace(b"\0", b"")), max_size=4)
)
def test_files_are_collected_whole_whatever_their_names(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        found = LocalDevice().collect([f"{folder}/{name}" for name in files], timeout=10)
    assert {Path(path).name: (text or b"").rstrip(b"\n") for path, text in found.items()} == {
        name: content.rstrip(b"\n") for name, content in files.items()
    }


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True), st.integers(1, 65535))
def test_a_trackers_address_reads_back(host: str, port: int) -> None:
    link = TrackerLink.parse(f"{host}:{port}")
    assert (link.host, link.port, str(link)) == (host, port, f"{host}:{port}")
