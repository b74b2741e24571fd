"""A service that runs already, asked for real: its rows, its pace, its secrets, and what is left behind."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness.analysis import results_folder, row_pricing
from harness.analysis.table import Row
from harness.driver.records import Outcome
from harness.launch.credentials import PASSWORD, TOKEN, USER
from harness.pricing.prices import Snapshot
from harness.results.isolation import ATTACHED
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import is_service
from tests.conftest import Bench
from tests.support.command_line import call
from tests.support.running_service import RunningService, running

pytestmark = pytest.mark.slow

ENGINE = Path(__file__).parents[1] / "engines" / "running"
SECRETS = {
    USER: "alice-of-search",
    PASSWORD: 'correct"horse\\battery',
    TOKEN: "tok-0123456789abcdefghijklmnopqrstuvwxyz",
}


@pytest.fixture
def service(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    (bench.folder / "engines" / "running").symlink_to(ENGINE)
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    made = RunningService()
    made.put("products", bench.folder / "tiny" / "corpus.jsonl")
    with running(made):
        yield made


def attach(bench: Bench, service: RunningService, *more: str) -> object:
    return call(*words(bench, service, *more))


def words(bench: Bench, service: RunningService, *more: str) -> list[str]:
    places = ["--results", str(bench.results), "--cache", str(bench.cache)]
    return ["attach", service.url, "--adapter", "running", "--dataset", str(bench.folder / "tiny"), *more, *places]


def jobs(bench: Bench) -> list[StoredJob]:
    return list(read_jobs(bench.results))


def rows(bench: Bench, snapshot: Snapshot) -> tuple[Row, ...]:
    (suite,) = (each for each in bench.results.iterdir() if each.is_dir())
    return row_pricing.price(results_folder.read(suite).table, row_pricing.tariff(snapshot)).rows


def test_a_running_service_gets_a_row_of_its_own_kind(
    bench: Bench, service: RunningService, snapshot: Snapshot
) -> None:
    done = attach(bench, service)
    assert done.exit_code == 0, done.output
    # Three processes, each one pass over the warm-up queries and one over the sample; nothing repeated or written.
    assert f"sends 18 queries to {service.url.removeprefix('http://')}, one at a time" in done.stderr
    assert "it writes nothing there" in done.stderr
    assert len(service.times("/search")) == 18 and len(service.times("/ready")) == 3 and service.writes == []

    (suite,) = bench.results.glob("*.toml")
    assert f"measure the service again: harness run {suite} --fresh" in done.stdout.replace("\n", " ")
    assert "a machine that nobody named (envelope not verified)" in done.stdout
    assert "no cost: harness does not know the machine" in done.stdout
    found = jobs(bench)
    assert [job.result.outcome for job in found] == [Outcome.OK] * 3
    for job in found:
        result = job.result
        assert result.isolation is ATTACHED and is_service(result) and result.index is None
        assert result.observed.placement.cpus == ()
        assert result.observed.counters.cpu_s is None and result.observed.memory.peak_anon_bytes is None
        assert result.observed.canary == () and result.measured.effective.memory_bytes is None
    # A client of six quick queries may come and go between two readings, on a busy machine.
    assert any(job.result.observed.counters.client_cpu_s is not None for job in found)
    (row,) = rows(bench, snapshot)
    assert row.machine is None and row.price is None and "--instance TYPE" in row.price_note
    assert row.usd_per_million.value is None and row.resources.load_s is None and row.client is not None
    assert row.validity.value == "clean" or row.findings
    assert all("docker" not in finding.text and "page cache" not in finding.text for finding in row.findings)

    again = attach(bench, service)
    assert "0 jobs run, 3 done before" in again.stderr and len(service.times("/search")) == 18


def test_a_price_comes_from_the_user_alone_and_is_in_no_result(
    bench: Bench, service: RunningService, snapshot: Snapshot
) -> None:
    assert attach(bench, service).exit_code == 0
    named = attach(bench, service, "--instance", "r7g.large")
    assert "on r7g.large as told (envelope not verified), priced on r7g.large" in named.stdout
    (row,) = rows(bench, snapshot)
    assert row.price.instance_type == "r7g.large" and row_pricing.basis(row) == "told"
    usd = row.latency.mean_s.value * row.price.usd_per_hour / 3600 * 1e6
    assert row.usd_per_million.value == pytest.approx(usd)
    assert "as its user told harness" in row.price_note

    attach(bench, service, "--usd-per-hour", "0.123457")
    (row,) = rows(bench, snapshot)
    assert row.price.usd_per_hour == 0.123457 and row.told.usd_per_hour == 0.123457
    for path in bench.results.rglob("result.json"):
        text = path.read_text("utf-8")
        assert "0.123457" not in text and "r7g" not in text and "usd" not in text
    (suite,) = (each for each in bench.results.iterdir() if each.is_dir())
    for form in ("md", "csv", "json", "html", "latex"):
        assert call("report", str(suite), "--format", form, "-o", str(bench.folder / f"x.{form}")).exit_code == 0
    shown = json.loads((bench.folder / "x.json").read_text("utf-8"))["rows"][0]
    assert shown["memory_limit_bytes"] is None and shown["cpus"] is None and shown["machine"] is None
    told = call("explain", "running", "--results", str(suite)).stdout
    assert "as its user told harness, which verified nothing of it" in told and "0 CPUs" not in told
    assert "US$ 0.123457 an hour as told (envelope not verified)" in told


def test_no_more_queries_a_second_are_sent_than_allowed(bench: Bench, service: RunningService) -> None:
    done = attach(bench, service, "--max-qps", "25", "--trials", "2")
    assert done.exit_code == 0, done.output
    assert "at most 25 a second" in done.stderr
    times = service.times("/search")
    assert len(times) == 12
    gaps = [after - before for before, after in itertools.pairwise(times)]
    # A request is on its way for some time, which differs: a late one comes close to the next.
    assert statistics.median(gaps) > 0.039 and times[-1] - times[0] >= 11 / 25 - 0.05
    (row,) = results_folder.read(next(each for each in bench.results.iterdir() if each.is_dir())).table.rows
    assert any("at most 25 queries a second were sent" in finding.text for finding in row.findings)
    assert not any(finding.cause.value == "unaccounted_time" for finding in row.findings)


def test_the_limit_ends_the_search_of_a_rate(bench: Bench, service: RunningService) -> None:
    assert attach(bench, service, "--max-qps", "200", "--trials", "1").exit_code == 0
    (suite,) = bench.results.glob("*.toml")
    text = suite.read_text("utf-8").replace("[protocol]", "[offline]\nbatch_size = 1\n\n[protocol]")
    suite.write_text('scenarios = ["offline"]\n' + text, encoding="utf-8")
    done = call("run", str(suite), "--results", str(bench.results), "--cache", str(bench.cache))
    assert done.exit_code == 0, done.output
    (job,) = (job for job in jobs(bench) if job.result.spec.cell.scenario == "offline")
    measured = job.result.measured
    assert measured.capped and measured.max_qps == 200 and measured.rate_qps <= 300
    assert (
        "the limit max_qps, not the service, ended the search"
        in call("report", str(suite.with_suffix("")), "--wide").stdout
    )


def test_credentials_reach_the_service_and_nothing_else(
    bench: Bench, service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-the-child")
    good = attach(bench, service)
    assert good.exit_code == 0, good.output
    assert f"credentials: {USER} and {PASSWORD} and {TOKEN}" in good.stderr
    assert {header for *_, header in service.requests} == {f"Bearer {SECRETS[TOKEN]}"}

    leaking = attach(bench, service, "--param", "leak=true")
    assert leaking.exit_code == 1 and "***" in leaking.output
    secret = [*SECRETS.values(), SECRETS[TOKEN][:9], SECRETS[PASSWORD][:9], json.dumps(SECRETS[PASSWORD])[1:-1]]
    held = {
        str(path): path.read_bytes() for path in bench.folder.rglob("*") if path.is_file() and not path.is_symlink()
    }
    held |= {f"{name}: text": gzip.decompress(each) for name, each in held.items() if name.endswith(".gz")}
    assert any(b"***" in content for name, content in held.items() if name.endswith("log.txt.gz: text"))
    for text in (*held.values(), good.output.encode(), leaking.output.encode()):
        assert not [each for each in secret if each.encode() in text]


@pytest.mark.parametrize("where", ["url", "param"])
def test_credentials_in_the_command_are_refused_without_a_word_of_them(
    bench: Bench, service: RunningService, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv(TOKEN, SECRETS[TOKEN])
    if where == "url":
        service.url = service.url.replace("http://", "http://alice:hush-hush@")
        done = attach(bench, service)
        assert f"{USER} and {PASSWORD}" in done.stderr
    else:
        done = attach(bench, service, "--param", f"index={SECRETS[TOKEN]}")
        assert f"the value of {TOKEN} is in the command" in done.stderr
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1
    assert "hush" not in done.output and SECRETS[TOKEN] not in done.output
    assert not bench.results.exists() and service.requests == []


def test_a_certificate_that_does_not_hold_is_refused_before_anything_is_sent(
    bench: Bench, service: RunningService
) -> None:
    tls = certificate(bench.folder)
    secure = RunningService(service.indexes)
    with running(secure, tls):
        done = attach(bench, secure)
        assert done.exit_code == 1 and "its certificate does not hold (self-signed certificate)" in done.stderr
        assert secure.requests == [] and not list(bench.results.rglob("result.json"))
        # One's own authority is trusted when it is named.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(tls[0]))
            done = attach(bench, secure)
        assert done.exit_code == 0, done.output


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that signs itself, and its key."""
    import ipaddress

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made, private = folder / "cert.pem", folder / "key.pem"
    made.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made, private


def test_a_service_that_dies_ends_the_job_with_its_reason(bench: Bench, service: RunningService) -> None:
    service.dies_after = 9
    done = attach(bench, service)
    assert done.exit_code == 1
    ended = [job.result for job in jobs(bench)]
    assert sorted(result.outcome.value for result in ended) == ["crash", "crash", "ok"]
    assert all("QueryFailed: the connection failed" in str(r.detail) for r in ended if r.outcome is Outcome.CRASH)
    # A client that finds no service asks once, and not for a minute.
    assert len(service.times("/ready")) == 3


def test_a_wrong_address_is_one_line(bench: Bench, service: RunningService) -> None:
    service.url = "http://127.0.0.1:9"
    done = attach(bench, service)
    lines = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
    assert done.exit_code == 1 and len(lines) == 1 and "the service cannot be reached (Connection refused)" in lines[0]
    assert jobs_or_none(bench) == []


def jobs_or_none(bench: Bench) -> list[Path]:
    return list(bench.results.rglob("result.json"))


def test_an_index_of_its_own_is_built_and_removed(bench: Bench, service: RunningService) -> None:
    done = attach(bench, service, "--build")
    assert done.exit_code == 0, done.output
    names = {path.rpartition("/")[2] for _, path in service.writes}
    (name,) = names
    assert f"it builds index {name!r} there and removes it" in done.stderr
    assert [verb for verb, _ in service.writes] == ["DELETE", "POST", "DELETE"]
    assert set(service.indexes) == {"products"} and len(service.times("/search")) == 18
    assert "--build names its index itself" in attach(bench, service, "--build", "--param", "index=products").stderr


def test_an_index_is_removed_after_an_error(bench: Bench, service: RunningService) -> None:
    done = attach(bench, service, "--build", "--param", "leak=true")
    assert done.exit_code == 1
    assert service.writes[-1][0] == "DELETE" and set(service.indexes) == {"products"}


@pytest.mark.parametrize("build", [False, True])
def test_ctrl_c_leaves_no_client_and_no_index(bench: Bench, service: RunningService, build: bool) -> None:
    arguments = words(bench, service, "--max-qps", "2", *(["--build"] if build else []))
    command = [sys.executable, "-m", "harness", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ)) as child:
        assert service.searched.wait(60)
        child.send_signal(signal.SIGINT)
        text, _ = child.communicate(timeout=60)
    assert child.returncode == 130, text.decode()
    assert set(service.indexes) == {"products"}
    if build:
        assert service.writes[-1][0] == "DELETE"
    sent = len(service.requests)
    time.sleep(1.2)
    assert len(service.requests) == sent and jobs_or_none(bench) == []
