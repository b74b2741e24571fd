"""Files over HTTP, whole or not at all."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click
import requests

from instance_profiles.fetching.addition import FetchError

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

# Seconds without a single byte, after which the other side is taken for gone.
_SILENCE = 60
_BLOCK = 1 << 20


def small_json(url: str) -> dict[str, Any]:
    """An index: a JSON object.

    Raises:
        FetchError: it does not come, or is none.
    """
    content = b"".join(_blocks(url, _open(url)))
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FetchError(f"{url}: is no JSON ({error}); is this AWS's price list?") from None
    if not isinstance(found, dict):
        raise FetchError(f"{url}: is no JSON object; is this AWS's price list?")
    return found


def large(url: str, stream: IO[bytes]) -> None:
    """Hundreds of MB, straight to the disk; says how far it is, where somebody looks on.

    Raises:
        FetchError: it does not come, or not to its end.
    """
    response = _open(url)
    announced = response.headers.get("Content-Length", "")
    size = int(announced) if announced.isascii() and announced.isdigit() else 0
    screen = sys.stderr if sys.stderr.isatty() else io.StringIO()  # click writes its label also where nobody looks
    bar: ProgressBar[int] = click.progressbar(length=size or 1, label="the region's prices", file=screen)
    with bar:
        for block in _blocks(url, response):
            stream.write(block)
            bar.update(len(block))
    stream.flush()


def _open(url: str) -> requests.Response:
    try:
        response = requests.get(url, stream=True, timeout=_SILENCE)
    except (requests.RequestException, ValueError) as error:
        raise FetchError(f"{url}: cannot be reached ({type(error).__name__}); is the network up?") from None
    if not response.ok:
        response.close()
        raise FetchError(f"{url}: HTTP {response.status_code}; try again, or name another --endpoint")
    return response


def _blocks(url: str, response: requests.Response) -> Iterator[bytes]:
    """urllib3 counts: fewer bytes than were announced are an error."""
    try:
        with response:
            yield from response.iter_content(_BLOCK)
    except requests.RequestException as error:
        raise FetchError(f"{url}: broke off ({type(error).__name__}); nothing was written, try again") from None
