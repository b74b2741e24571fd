"""An instance metadata service on loopback, as EC2's version 2: nothing without a token."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.aws import server

# The id of the workers' role, where no role was made.
ROLE_ID = "AROAEXAMPLE7ROLE7WRKX"


@dataclass
class Metadata:
    """What one instance's service says; ``paths`` below ``latest/meta-data/``."""

    endpoint: str = ""
    paths: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def announce(self, action: str = "terminate", time: str = "2026-01-01T00:02:00Z") -> None:
        """Let EC2 take the instance away soon."""
        self.paths["spot/instance-action"] = json.dumps({"action": action, "time": time})


def of(
    instance_id: str = "i-0123456789abcdef0", instance_type: str = "c7g.large", lifecycle: str = "on-demand"
) -> dict[str, str]:
    """The paths of an ordinary instance."""
    return {
        "instance-id": instance_id,
        "instance-type": instance_type,
        "placement/availability-zone": f"{server.REGION}a",
        "ami-id": "ami-0123456789abcdef0",
        "instance-life-cycle": lifecycle,
        **credentials(server.WORKER_KEY),
    }


def credentials(key: str) -> dict[str, str]:
    """The paths of the role's credentials, which are made up."""
    found = {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": key,
        "SecretAccessKey": server.SECRET_KEY,
        "Token": server.TOKEN,
        "LastUpdated": "2026-01-01T00:00:00Z",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    return {"iam/security-credentials/": "worker", "iam/security-credentials/worker": json.dumps(found)}


@contextmanager
def running(paths: dict[str, str]) -> Iterator[Metadata]:
    """Serve them on a port of its own."""
    metadata = Metadata(paths=paths)

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if self.path != "/latest/api/token" or not ttl.isdecimal():
                return self._say(400, "")
            token = secrets.token_hex(16)
            metadata.tokens.add(token)
            return self._say(200, token)

        def do_GET(self) -> None:
            metadata.requests.append(self.path)
            if self.headers.get("X-aws-ec2-metadata-token") not in metadata.tokens:
                return self._say(401, "")
            found = metadata.paths.get(self.path.removeprefix("/latest/meta-data/"))
            return self._say(200 if found is not None else 404, found or "")

        def _say(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    metadata.endpoint = f"http://127.0.0.1:{web.server_port}"
    thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield metadata
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
