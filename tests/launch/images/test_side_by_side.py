"""Tests of making images side by side: all end, errors stop no other, and a stop ends all."""

from __future__ import annotations

import logging
import threading

import pytest

from harness.errors import ImageError, StoreError
from harness.launch import host
from harness.launch.images import side_by_side
from harness.progress import Progress


class LongBuild:
    """A build that runs until it is stopped."""

    def __init__(self) -> None:
        self.running, self.ended = threading.Event(), threading.Event()

    def __call__(self, stopped: threading.Event, _: Progress) -> str:
        self.running.set()
        if stopped.wait(10):
            self.ended.set()
        raise ImageError("the run was stopped")


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cpus", lambda: 2)


def test_two_images_are_made_at_once_and_an_error_stops_no_other() -> None:
    together = threading.Barrier(2, timeout=10)

    def made(_: threading.Event, __: Progress) -> str:
        together.wait()
        return "image"

    def failed(_: threading.Event, __: Progress) -> str:
        together.wait()
        raise ImageError("no weights")

    found = dict(side_by_side.make({"one": made, "two": failed}))
    assert found["one"] == "image" and str(found["two"]) == "no weights"


@pytest.mark.parametrize("error", [StoreError("the disk is full"), KeyboardInterrupt()])
def test_another_error_ends_the_builds_that_run_and_begins_no_further(error: BaseException) -> None:
    begun, long = list[str](), LongBuild()

    def broken(_: threading.Event, __: Progress) -> str:
        assert long.running.wait(10)
        raise error

    def later(_: threading.Event, __: Progress) -> str:
        begun.append("later")
        return "image"

    with pytest.raises(type(error)):
        list(side_by_side.make({"long": long, "broken": broken, "later": later, "last": later}))
    assert long.ended.is_set() and len(begun) < 2


def test_a_caller_that_stops_ends_the_builds() -> None:
    long = LongBuild()

    def quick(_: threading.Event, __: Progress) -> str:
        assert long.running.wait(10)
        return "image"

    making = side_by_side.make({"quick": quick, "long": long})
    assert next(making) == ("quick", "image")
    making.close()  # type: ignore[attr-defined]
    assert long.ended.is_set()


def test_an_image_that_took_long_has_a_line_when_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(side_by_side, "_NOTABLE_S", 0.0)
    with caplog.at_level(logging.INFO, "harness"):
        list(side_by_side.make({"toy": lambda *_: "image"}))
    assert caplog.messages == ["  toy: image ...", "  toy: image made in 0 s"]
