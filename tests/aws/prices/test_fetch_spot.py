"""Spot prices from a server that speaks EC2's query API; boto3 is the real one."""

import datetime
import logging
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from click.testing import Result

from harness.pricing import prices
from tests.aws.prices import price_server as aws
from tests.aws.prices.conftest import Fetch, content
from tests.aws.prices.price_server import Answer

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEY = "AKIAIOSFODNN7EXAMPLE"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set the credentials of AWS's documentation and remove those of the user."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def spot(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """`harness prices fetch --spot` from the server at a URL."""

    def run(url: str, *more: str) -> Result:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", url)
        return fetch("--spot", *more)

    return run


def pages(*found: list[str]) -> Callable[[str], Answer]:
    """EC2's pages: each but the last names the next."""

    def answer(body: str) -> Answer:
        asked = parse_qs(body)
        assert asked["Action"] == ["DescribeSpotPriceHistory"]
        assert asked["ProductDescription.1"] == ["Linux/UNIX"]
        number = int(asked.get("NextToken", ["0"])[0])
        return aws.spot_page(found[number], str(number + 1) if number + 1 < len(found) else "")

    return answer


def refusal(code: str, status: int) -> Answer:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{code}</Code><Message>User: arn:aws:iam::123456789012:user/jane is not allowed to</Message>"
        "</Error></Errors><RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
    )
    return Answer(text.encode(), status, "text/xml")


def snapshot_file(root: Path) -> Path:
    (found,) = (root / "prices").glob("aws_us-east-1_spot_*.csv")
    return found


@pytest.mark.slow
def test_snapshot_takes_the_newest_price_of_the_cheapest_zone(root: Path, spot: Fetch) -> None:
    old = "2026-11-20T01:00:00.000Z"
    first = [
        aws.spot_item("m5.large", "us-east-1a", "0.038100"),
        aws.spot_item("m5.large", "us-east-1b", "0.010000", old),
        aws.spot_item("c5.large", "us-east-1a", "0.036900"),
    ]
    second = [
        aws.spot_item("m5.large", "us-east-1b", "0.037400"),
        aws.spot_item("m5.large", "us-east-1c", "0.041000"),
        aws.spot_item("z99.large", "us-east-1a", "0.000100"),
    ]
    before = content(root)
    with aws.serve({"/": pages(first, second)}) as server:
        result = spot(server.url)
        assert len(server.asked) == 2
    assert (result.exit_code, result.stderr) == (0, "")
    path = snapshot_file(root)
    day = re.search(r"\d{4}-\d{2}-\d{2}", path.name)[0]
    assert path.read_text() == (
        prices.PRICE_HEADER + "\n"
        f"aws,us-east-1,c5.large,spot,0.0369,{day},EC2 DescribeSpotPriceHistory (cheapest zone)\n"
        f"aws,us-east-1,m5.large,spot,0.0374,{day},EC2 DescribeSpotPriceHistory (cheapest zone)\n"
    )
    assert result.stdout == (
        f"{path}: 2 spot; source: EC2 DescribeSpotPriceHistory (cheapest zone)\n"
        "left out: z99.large: no facts in instances/aws.csv; `harness prices fetch` adds facts of new types\n"
    )
    assert prices.snapshot(root=root, term="spot").price_of("m5.large") == 0.0374
    assert prices.snapshot(root=root).as_of == datetime.date(2026, 7, 20)
    after = content(root)
    assert {name for name in before if before[name] != after[name]} == {"prices/SHA256SUMS"}


@pytest.mark.slow
def test_the_order_of_pages_does_not_matter(root: Path, spot: Fetch) -> None:
    newest = [aws.spot_item("m5.large", "us-east-1b", "0.0374")]
    older = [aws.spot_item("m5.large", "us-east-1b", "0.01", "2026-11-20T01:00:00.000Z")]
    with aws.serve({"/": pages(newest, older)}) as server:
        spot(server.url)
    assert prices.snapshot(root=root, term="spot").price_of("m5.large") == 0.0374


@pytest.mark.slow
def test_credentials_are_neither_stored_nor_shown(root: Path, spot: Fetch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers: list[Answer | Callable[[str], Answer]] = [
        pages([aws.spot_item("m5.large", "us-east-1a", "0.0381")]),
        refusal("AuthFailure", 401),
    ]
    said = ""
    for answer in answers:
        with aws.serve({"/": answer}) as server:
            result = spot(server.url, "--region", "us-east-1" if said == "" else "eu-west-1")
        said += result.output
    kept = b"".join(content(root).values())
    for secret in (KEY, SECRET, "123456789012", "jane"):
        assert secret not in said + caplog.text
        assert secret.encode() not in kept


def refused_line(root: Path, spot: Fetch, answer: Answer | Callable[[str], Answer], *more: str) -> str:
    """Fetch, check that no file changed, and return the one line of the error."""
    before = content(root)
    with aws.serve({"/": answer}) as server:
        result = spot(server.url, *more)
    assert content(root) == before
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert result.exit_code == (2 if more else 1)
    return result.stderr


ITEM = aws.spot_item("m5.large", "us-east-1a", "0.0381")
UNREAD = "AWS gave no answer that can be read; try again later"
WRONG_ENTRY = "an entry of the spot history cannot be read"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            aws.spot_page([]),
            "EC2 us-east-1 returned no spot price; check that this account may use spot",
        ),
        (
            Answer(b"<html><body>Sign in</html>", kind="text/html"),
            UNREAD,
        ),
        (
            Answer(aws.spot_page([ITEM]).body[:-60], kind="text/xml"),
            UNREAD,
        ),
        (
            Answer(aws.spot_page([ITEM] * 50).body, kind="text/xml", cut=900),
            UNREAD,
        ),
        (refusal("AuthFailure", 401), "AWS does not know these credentials (AuthFailure)"),
        (refusal("UnauthorizedOperation", 403), "not permitted ("),
        (
            aws.spot_page([aws.spot_item("m5.large", "us-east-1a", "cheap")]),
            WRONG_ENTRY,
        ),
        (aws.spot_page([aws.spot_item("m5.large", "us-east-1a", "0")]), "the spot price of m5.large is '0'"),
        (aws.spot_page([aws.spot_item("m5.large", "us-east-1a", "NaN")]), "the spot price of m5.large is 'NaN'"),
        (
            aws.spot_page([aws.spot_item("m5.large", "us-east-1a", "0.1", "lately")]),
            UNREAD,
        ),
        (
            aws.spot_page(["<item><instanceType>m5.large</instanceType></item>"]),
            WRONG_ENTRY,
        ),
        (
            aws.spot_page([aws.spot_item("z99.large", "us-east-1a", "1")]),
            "returned 1 types, and instances/aws.csv has none of them",
        ),
    ],
)
def test_wrong_answers_change_nothing_and_are_one_line(root: Path, spot: Fetch, answer: Answer, said: str) -> None:
    line = refused_line(root, spot, answer)
    assert line.startswith(("harness: EC2", "harness: reading the spot prices of us-east-1: ")) and said in line, line


@pytest.mark.slow
def test_missing_second_page_writes_no_snapshot(root: Path, spot: Fetch) -> None:
    def answer(body: str) -> Answer:
        return refusal("RequestLimitExceeded", 400) if "NextToken" in body else aws.spot_page([ITEM], "1")

    assert "AWS is busy (RequestLimitExceeded)" in refused_line(root, spot, answer)


def test_nonexistent_region_is_one_line(root: Path, spot: Fetch) -> None:
    said = refused_line(root, spot, pages([ITEM]), "--region", "us-east-11")
    assert said.startswith("harness: unknown region 'us-east-11'. Did you mean 'us-east-1'?")


def test_existing_prices_of_today_are_refused_before_any_request(root: Path, spot: Fetch) -> None:
    with aws.serve({"/": pages([ITEM])}) as server:
        spot(server.url)
        path = snapshot_file(root)
        for _ in range(2):  # should midnight come in between, the second time meets the new day's prices
            before, asked = content(root), len(server.asked)
            result = spot(server.url)
            path = max(path.parent.glob("*_spot_*"))
        assert len(server.asked) == asked
    message = f"harness: {path}: prices of {path.stem[-10:]} exist already and never change; nothing was written\n"
    assert (result.exit_code, result.stderr) == (2, message)
    assert content(root) == before
