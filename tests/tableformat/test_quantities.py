"""Numbers as people write and read them."""

from __future__ import annotations

import pytest

from tableformat.errors import UsageError
from tableformat.quantities import (
    counted,
    duration_text,
    human_bytes,
    left_text,
    parse_size,
    rate_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1_048_576),
        ("50MB", 50_000_000),
        ("50 mb", 50_000_000),
        ("50M", 50_000_000),
        ("128MiB", 134_217_728),
        ("128Mi", 134_217_728),
        ("1GB", 1_000_000_000),
        ("1.5 GiB", 1_610_612_736),
        ("64k", 64_000),
        ("7B", 7),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size("--max-bandwidth", text) == size


def test_a_number_alone_counts_what_the_option_counts() -> None:
    assert parse_size("--target-file-size", "128", unit=1024**2) == 134_217_728
    assert parse_size("--target-file-size", "128kB", unit=1024**2) == 128_000


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1e6", "5iB", "1..5GB", "10000PB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="it is not a size"):
        parse_size("--max-bandwidth", text)


def test_one_is_singular_and_all_others_are_plural() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 1200)] == [
        "0 files", "1 file", "2 files", "1,200 files"
    ]  # fmt: skip


def test_sizes_have_the_greatest_unit() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1024, 5 * 1024**5)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 PiB"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (3.94, "3.9 s"), (73.2, "73 s"), (725, "12 min 5 s"), (4320, "1 h 12 min")],
)
def test_a_duration_is_shown_in_the_units_that_fit_it(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "5 s left"),
        (17, "15 s left"),
        (58, "1 min left"),
        (150, "2 min left"),
        (4320, "1 h 12 min left"),
        (43_200, "12 h left"),
        (200_000, "2 d 7 h left"),
    ],
)
def test_what_is_left_is_rounded(seconds: float, text: str) -> None:
    assert left_text(seconds) == text


@pytest.mark.parametrize(
    ("rows", "seconds", "text"),
    [
        (999, 5.0, ""),
        (5000, 0.9, ""),
        (1000, 2.0, "500 rows/s"),
        (130_000, 1.0, "130 k rows/s"),
        (2600, 2.0, "1.3 k rows/s"),
        (9_000_000, 2.0, "4.5 M rows/s"),
    ],
)
def test_a_rate_is_shown_where_it_means_something(rows: int, seconds: float, text: str) -> None:
    assert rate_text(rows, seconds) == text
