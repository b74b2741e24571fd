"""The driver's code in images: what counts as a change of it."""

from __future__ import annotations

import pytest

from harness.driver.records import PROTOCOL_VERSION
from harness.launch.images import driver_code

SOURCE = '''"""A module."""

def scale(value: float) -> float:
    """Return twice the value."""
    return value * 2  # doubled


class Empty:
    """A class of words alone."""
'''


def test_driver_is_recorded_beside_its_protocol() -> None:
    assert driver_code.code_hash() in driver_code.ALIKE.get(PROTOCOL_VERSION, ()), (
        "the driver changed: raise PROTOCOL_VERSION in harness/driver/records.py if a timing or a file between host"
        f" and container may differ, else record that timing is unchanged: append {driver_code.code_hash()!r} to"
        f" ALIKE[{PROTOCOL_VERSION}] in harness/launch/images/driver_code.py"
    )


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# doubled", "# two times", True),
        ("Return twice the value.", "Double it.", True),
        ('    """Return twice the value."""\n', "", True),
        ("A module.", "Another text.", True),
        ("A class of words alone.", "Nothing.", True),
        ("value * 2", "(value * 2)", True),
        ("value * 2", "2 * value", False),
        ("value: float", "value: int", False),
        ("def scale", "def grow", False),
        ("value * 2", '"value" * 2', False),
        ("return value * 2", 'return """value"""', False),
    ],
)
def test_code_counts_and_docstrings_do_not(old: str, new: str, same: bool) -> None:
    assert SOURCE.count(old) == 1
    assert (driver_code.tree_of(SOURCE.replace(old, new)) == driver_code.tree_of(SOURCE)) == same


def test_image_gets_an_empty_package_and_the_driver() -> None:
    files = driver_code.files()
    assert files.pop("harness/__init__.py") == b""
    assert {"harness/driver/__init__.py", "harness/driver/records.py"} <= files.keys()
    assert all(name.startswith("harness/driver/") for name in files)
