"""Numbers as cells of a report."""

import pytest

from harness.report import document


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.000646, "0.000646"),
        (0.0116, "0.0116"),
        (1.634, "1.63"),
        (9.999, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (146.4, "146"),
        (1024.0, "1024"),
        (123456.7, "123457"),
    ],
)
def test_numbers_have_three_digits(value: float, written: str) -> None:
    assert document.number(value) == written
