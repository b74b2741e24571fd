"""moto's server, mended where AWS is kinder.

Ending an instance once more is no error there: moto deletes its network interfaces each time, and fails the second
time.  EC2 answers many at once: moto walks its dictionaries while another request adds to them, and fails with a page
of HTML, so it gets one request of EC2 after the other.  Of two that write an object at once if it is not there, S3
lets one win: moto looks first and writes later, so it gets one such request after the other.

And mended where it fails: it knows no quota of EC2 and answers with status 500, which boto3 tries again for seconds.
Here it refuses to say them, as AWS does to users without the right.
"""

from __future__ import annotations

import copy
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from moto import server
from moto.core.exceptions import JsonRESTError
from moto.ec2.models.instances import Instance
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.servicequotas.models import ServiceQuotasBackend

_really = Instance.terminate
_dispatch = DomainDispatcherApplication.__call__
_alone, _in_turn, _if_so = threading.Lock(), threading.Lock(), threading.Lock()


def _terminate(self: Instance) -> Any:
    with _alone:
        return copy.copy(self._state) if self._state.name == "terminated" else _really(self)


def _quota(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> Any:  # noqa: ARG001
    raise JsonRESTError("AccessDeniedException", f"not authorized to see {service_code}/{quota_code}")


def _one_by_one(self: DomainDispatcherApplication, environ: dict[str, Any], start_response: Any) -> Any:
    signed_for = environ.get("HTTP_AUTHORIZATION", "")
    turn: AbstractContextManager[Any] = nullcontext()
    if "/ec2/aws4_request" in signed_for:
        turn = _in_turn
    elif environ["REQUEST_METHOD"] == "PUT" and ("HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ):
        turn = _if_so
    with turn:
        return _dispatch(self, environ, start_response)


if __name__ == "__main__":
    DomainDispatcherApplication.__call__ = _one_by_one  # type: ignore[method-assign]
    Instance.terminate = _terminate  # type: ignore[method-assign]
    ServiceQuotasBackend.get_service_quota = _quota  # type: ignore[method-assign]
    server.main()
