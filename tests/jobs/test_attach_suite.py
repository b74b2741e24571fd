"""The suite of `harness attach`: what the command line says, written as a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.jobs import suite
from harness.jobs.attach_suite import AttachSuite
from harness.jobs.command_suite import written
from harness.launch.images.systems import System
from tests.support import job_fixtures

SYSTEM = job_fixtures.system("asks", search_params={"index": "products", "connections": 4, "boost": 1.5, "exact": True})


def write(folder: Path, *params: str, url: str = "https://Search.example.org:9200/v1", **more: Any) -> suite.Suite:
    with written(AttachSuite(url, SYSTEM, "scifact", params, **more).write, folder) as path:
        return suite.load(path)


def test_options_are_written_with_the_kinds_of_the_systems_parameters(tmp_path: Path) -> None:
    made = write(tmp_path, "index=My Index", "connections=8", "boost=2", "exact=false", queries=50, max_qps=2.5)
    assert made.service.params == {"index": "My Index", "connections": 8, "boost": 2.0, "exact": False}
    assert (made.protocol.sample_size, made.protocol.trials, made.protocol.max_qps) == (50, 3, 2.5)
    assert made.name == "scifact-asks-search.example.org-9200-v1"
    # A later command changes what it gives, and keeps what was edited.
    (path,) = tmp_path.glob("*.toml")
    path.write_text(path.read_text("utf-8").replace("max_qps = 2.5", "max_qps = 2.5\nk = 20"), encoding="utf-8")
    again = write(tmp_path, instance="r7g.large", trials=5)
    assert (again.protocol.trials, again.protocol.max_qps, again.protocol.k) == (5, 2.5, 20)
    assert again.service.instance == "r7g.large" and again.service.params == {}


def test_an_index_of_its_own_keeps_its_name(tmp_path: Path) -> None:
    first = write(tmp_path, build=True).service.params["index"]
    assert re.fullmatch("harness-[0-9a-f]{8}", str(first))
    assert write(tmp_path, build=True).service.params["index"] == first
    assert write(tmp_path, url="http://other", build=True).service.params["index"] != first


@pytest.mark.parametrize(
    ("params", "more", "message"),
    [
        (["index"], {}, "--param 'index' has no value; write NAME=VALUE"),
        (["indx=a"], {}, "has no parameter 'indx'. Did you mean 'index'"),
        (["index=a", "index=b"], {}, "--param index is given twice"),
        (["connections=many"], {}, "'many' is not a whole number; write it as connections=4"),
        (["exact=1"], {}, "'1' is not true or false; write it as exact=true"),
        (["boost=x"], {}, "'x' is not a number"),
        (["index=a"], {"build": True}, "--build names its index itself; leave --param index out"),
    ],
)
def test_wrong_parameters_are_one_line_and_leave_no_file(
    tmp_path: Path, params: list[str], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        write(tmp_path, *params, **more)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_another_suite_by_now_is_kept(tmp_path: Path) -> None:
    write(tmp_path)
    (path,) = tmp_path.glob("*.toml")
    path.write_text(path.read_text("utf-8").replace("scifact", "nfcorpus"), encoding="utf-8")
    with pytest.raises(UsageError, match="it has other datasets by now"):
        write(tmp_path)


def test_unknown_parameters_of_a_suite_are_refused() -> None:
    with pytest.raises(UsageError, match=r"asks has no parameter 'indx'\. Did you mean 'index'"):
        SYSTEM.with_params({"indx": "a"})
    changed: System = SYSTEM.with_params({"connections": 8})
    assert changed.search_params["connections"] == 8 and changed.name == "asks" and changed.image == SYSTEM.image
