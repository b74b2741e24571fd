"""Owner tags tell users of one account apart, and name nobody."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.aws import clients
from harness.aws.clients import Connections
from tests.aws.server import REGION, SECRETS

Owner = Callable[[str, str], str]
ROLE = "sts::1:assumed-role/Admin/botocore-session-1"
SSO = "sts::1:assumed-role/AWSReservedSSO_Admin_0a"


@pytest.fixture
def owner(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    """The owner of an ARN, for a user of a cache."""
    monkeypatch.delenv(clients.VARIABLE, raising=False)

    def ask(arn: str, cache: str = "cache") -> str:
        connections = Connections(REGION)

        def answer(parsed: dict[str, object], **_: object) -> None:
            parsed["Arn"] = f"arn:aws:{arn}"

        connections.client("sts").meta.events.register("after-call.sts.GetCallerIdentity", answer)
        return clients.owner(connections, tmp_path / cache)

    return ask


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ROLE, "sts::1:assumed-role/Admin/botocore-session-2", True),
        (ROLE, "sts::1:assumed-role/Other/botocore-session-1", False),
        (ROLE, "sts::2:assumed-role/Admin/botocore-session-1", False),
        (f"{SSO}/me", f"{SSO}/you", False),
        ("iam::1:user/me", "iam::1:user/you", False),
    ],
)
def test_the_owner_is_the_same_after_another_login(owner: Owner, one: str, other: str, same: bool) -> None:
    assert (owner(one, "cache") == owner(other, "cache")) == same


@pytest.mark.parametrize(("arn", "same"), [(ROLE, False), (f"{SSO}/me", True), ("iam::1:user/me", True)])
def test_users_of_one_role_differ_by_their_caches(owner: Owner, arn: str, same: bool) -> None:
    """Nobody's `reap --yes` ends a colleague's workers; who has a name of his own is known everywhere."""
    assert (owner(arn, "mine") == owner(arn, "yours")) == same
    assert owner(arn, "mine") == owner(arn, "mine")


def test_an_owner_is_named_by_the_environment(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where caches are thrown away, in CI."""
    drawn = owner(ROLE, "mine")
    monkeypatch.setenv(clients.VARIABLE, "nightly")
    assert owner(ROLE, "mine") == owner(ROLE, "yours") != drawn
    monkeypatch.setenv(clients.VARIABLE, "weekly")
    assert owner(ROLE, "mine") != drawn


def test_an_owner_is_a_hash(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clients.VARIABLE, "somebody")
    found = owner(ROLE, "mine")
    assert len(found) == 12 and set(found) <= set("0123456789abcdef")
    assert not [word for word in (*SECRETS, "somebody", "Admin") if word in found]


def test_processes_that_draw_an_id_at_once_agree(owner: Owner, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: owner(ROLE, "cache"), range(8)))
    assert len(found) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["owner"], "no draft is left"
