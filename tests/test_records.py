"""Records cross a boundary unchanged; every field that decides a measurement decides its key."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.driver.records import (
    Envelope,
    Measurement,
    Outcome,
    Phase,
    ScenarioParams,
    digest,
    spec_from_json,
    to_json,
)
from harness.results.isolation import PROCESS
from harness.results.schema import ResultSpec, job_key
from tests.support.job_fixtures import FULL_SPEC
from tests.support.sample_records import GOLDEN_SPEC

ROOT = str(Path(__file__).parents[1])


def test_job_spec_round_trips() -> None:
    assert spec_from_json(to_json(FULL_SPEC)) == FULL_SPEC
    assert spec_from_json(to_json(replace(FULL_SPEC, cpuset=None))) == replace(FULL_SPEC, cpuset=None)


def test_spec_without_placement_has_no_cpuset() -> None:
    raw = json.loads(to_json(FULL_SPEC))
    del raw["cpuset"]
    assert spec_from_json(json.dumps(raw)).cpuset is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol_version": 1}, "contract version 1, this image speaks 2"),
        ({"protocol_version": None}, "contract version None"),
        ({"surprise": 1}, "does not follow the contract: .*surprise"),
        ({"envelope": {"cpus": 1}}, "does not follow the contract: .*name"),
        ({"enforced": None}, "does not follow the contract"),
        ({"sample": [{"query_id": "q"}]}, "does not follow the contract: .*text"),
        ({"cpuset": {"cpus": 1}}, "does not follow the contract: .*not iterable"),
        ({"cpuset": {"mems": []}}, "does not follow the contract: .*mems"),
        ({"cpuset": [1]}, "does not follow the contract"),
        ({"sample": None}, "does not follow the contract"),
    ],
)
def test_spec_that_breaks_the_contract_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec_from_json(json.dumps({**json.loads(to_json(FULL_SPEC)), **change}))


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"protocol_version": 2}'])
def test_malformed_spec_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        spec_from_json(text)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ResultSpec)])
def test_each_field_that_affects_a_measurement_changes_its_key(field: str) -> None:
    value = getattr(GOLDEN_SPEC, field)
    other: Any = {
        "cell": replace(GOLDEN_SPEC.cell, profile="cpu2-mem4"),
        "envelope": replace(GOLDEN_SPEC.envelope, pids=99),
        "isolation": PROCESS.name,
        "params": {"k1": 1.2},
        "scenario_params": ScenarioParams(batch_size=8),
    }.get(field, value + 1 if isinstance(value, int) else f"{value}?")
    assert job_key(replace(GOLDEN_SPEC, **{field: other})) != job_key(GOLDEN_SPEC)


def test_key_does_not_change_between_versions() -> None:
    """Stored folders are named by their key."""
    assert job_key(GOLDEN_SPEC) == "be5e7a5c7a53a3ad"


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1.5, None]}) == digest({"b": (1.5, None), "a": 1})
    assert digest(FULL_SPEC) == digest(json.loads(to_json(FULL_SPEC)))


@pytest.mark.parametrize("indent", [None, 2])
def test_json_equals_that_of_deep_copies(indent: int | None) -> None:
    measured = Measurement(Outcome.OK, None, None, (Phase("a", 1, 2), Phase("b", 3, 4)), libraries={"ü": "1", "a": "2"})
    for record in (GOLDEN_SPEC, measured, FULL_SPEC.envelope):
        plain = dataclasses.asdict(record)
        for name in ("query_qps", "update_qps", "deleted_share"):  # at their defaults, which older drivers do not know
            plain.get("scenario_params", {}).pop(name, None)
        assert to_json(record, indent=indent) == to_json(plain, indent=indent)
        assert to_json([record], indent=indent) == to_json([plain], indent=indent)
    for other in (object(), Envelope, {1, 2}):
        with pytest.raises(TypeError):
            to_json({"a": other})


def test_nan_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": float("inf")})


def test_outcomes_have_their_words() -> None:
    words = ["ok", "oom", "timeout", "crash", "bad_output", "envelope_mismatch", "not_applicable", "interrupted"]
    assert [outcome.value for outcome in Outcome] == words


@pytest.mark.slow
def test_driver_imports_the_standard_library_alone() -> None:
    code = "import sys, harness.driver.driver; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    foreign = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"harness", "__main__"}
    assert not foreign
