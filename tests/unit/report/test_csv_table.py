"""CSV downloads: what a spreadsheet makes of their cells."""

import base64
import csv
import io
import re

import pytest

from autotune.report.pages.html_page import download_table


def cells(*row: object) -> list[str]:
    """A row as it is in a page's link."""
    html = download_table("table.csv", [str(number) for number in range(len(row))], [row])
    found = re.search(r"base64,([A-Za-z0-9+/=]+)", html)
    assert found is not None
    return list(csv.reader(io.StringIO(base64.b64decode(found[1]).decode())))[1]


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("http://example.org")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1",
        "-", "--1", "-1e", "=1", "\uff1d1", "-1 + 1", "+x",
    ],
)  # fmt: skip
def test_text_is_no_formula(text: str) -> None:
    (cell,) = cells(text)
    assert cell == f"'{text}"


@pytest.mark.parametrize(
    "value", [-1, -1.5, -1e-9, "-1.5", "+3", "-1e-9", "-.5", "text", "a=b", ""]
)
def test_numbers_and_other_text_stay_as_they_are(value: object) -> None:
    assert cells(value, "there") == [str(value), "there"]


def test_no_cell_begins_a_row() -> None:
    assert cells("\r=1", "a\r=1", "b\r\n=1", "c") == ["'\n=1", "a\n=1", "b\n=1", "c"]


def test_columns_are_no_formulas_either() -> None:
    html = download_table("table.csv", ["=1"], [])
    found = re.search(r"base64,([A-Za-z0-9+/=]+)", html)
    assert found is not None
    assert base64.b64decode(found[1]) == b"'=1\n"
