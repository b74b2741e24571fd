"""The address of a service that runs already, and whether a system may ask it.  Quick to import."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from harness.launch.images.systems import System

# The parameter that names a service's index; with `--build` harness sets it to a name of its own.
INDEX = "index"
PORTS = {"http": 80, "https": 443, "postgresql": 5432}


def parsed(url: str) -> SplitResult:
    """Return the parts of a service's address.

    Raises:
        ValueError: it is not such an address, or has credentials, which would be stored; the text quotes none of it.
    """
    try:
        address = urlsplit(url)
        port = address.port
    except ValueError:
        raise ValueError("is not an address; write http://HOST:PORT or https://HOST") from None
    if "@" in address.netloc:
        variables = "HARNESS_SERVICE_USER and HARNESS_SERVICE_PASSWORD, or HARNESS_SERVICE_TOKEN,"
        raise ValueError(f"has a user or a password in it; set {variables} in the environment, and leave them out")
    if address.query or address.fragment:
        raise ValueError(
            "has more than an address behind its path; a key belongs into HARNESS_SERVICE_TOKEN, all else into --param"
        )
    if address.scheme not in PORTS or not address.hostname or port == 0 or url != url.strip():
        raise ValueError(f"is not the address of a service; write {', '.join(f'{name}://HOST:PORT' for name in PORTS)}")
    return address


def is_local(url: str) -> bool:
    """Return whether a service is on this machine, so that no network sees what is sent to it."""
    name = parsed(url).hostname or ""
    return name in ("localhost", "::1") or name.startswith("127.")


def cannot_ask(system: System, *, build: bool) -> str | None:
    """Return why a system cannot ask a running service, or why it may not build an index there; or None."""
    if system.service is None:
        return f"engine {system.engine!r} is a library, not the client of a service; name another --adapter"
    if build and not (system.service.removes and INDEX in system.params):
        return f"the adapter of engine {system.engine!r} cannot remove an index, so it builds none; leave out --build"
    return None
