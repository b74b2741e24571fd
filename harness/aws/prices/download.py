"""Files over HTTP, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import requests

from harness import progress
from harness.errors import RemoteError

# Seconds without a single byte, after which the server counts as gone.
_SILENCE_S = 60
_BLOCK_BYTES = 1 << 20


def small_json(url: str) -> dict[str, Any]:
    """Return a JSON object, such as an index.

    Raises:
        RemoteError: the file cannot be fetched, or holds no JSON object.
    """
    content = b"".join(_blocks(url, _open(url)))
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"{url}: is not JSON ({error}); check that this is AWS's price list") from None
    if not isinstance(found, dict):
        raise RemoteError(f"{url}: is not a JSON object; check that this is AWS's price list")
    return found


def large(url: str, stream: IO[bytes], title: str) -> None:
    """Write hundreds of MB straight to the disk, with a bar in MiB on a terminal.

    Raises:
        RemoteError: the file cannot be fetched, or breaks off.
    """
    response = _open(url)
    announced = response.headers.get("Content-Length", "")
    size = int(announced) if announced.isascii() and announced.isdigit() else 0
    written = 0
    with progress.bar(title, "MiB") as step:
        for block in _blocks(url, response):
            written += stream.write(block)
            step(written >> 20, size >> 20)
    stream.flush()


def _open(url: str) -> requests.Response:
    try:
        response = requests.get(url, stream=True, timeout=_SILENCE_S)
    except (requests.RequestException, ValueError) as error:
        raise RemoteError(f"{url}: cannot be reached ({type(error).__name__}); check the network") from None
    if not response.ok:
        response.close()
        raise RemoteError(f"{url}: HTTP {response.status_code}; try again, or name another --endpoint")
    return response


def _blocks(url: str, response: requests.Response) -> Iterator[bytes]:
    """Yield the content; urllib3 counts, so fewer bytes than were announced are an error."""
    try:
        with response:
            yield from response.iter_content(_BLOCK_BYTES)
    except requests.RequestException as error:
        raise RemoteError(f"{url}: broke off ({type(error).__name__}); nothing was written, try again") from None
