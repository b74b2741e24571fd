"""moto's server, mended where AWS is kinder.

Ending an instance once more is no error there: moto deletes its network interfaces each time, and fails the second
time.  EC2 answers many at once: moto walks its dictionaries while another request adds to them, and fails with a page
of HTML, so it gets one request of EC2 after the other.  Of two that write an object at once if it is not there, S3
lets one win: moto looks first and writes later, so it gets one such request after the other.

And where it is stricter: it reads a bucket's policy without its conditions, so it would deny all that is denied without
TLS; here it asks no bucket (``tests/aws/rights.py`` does).

And where it is lenient: AWS Batch takes its own service-linked role unless another is named, and does what an update
asks; EC2 keeps a security group while a network interface has it; STS says who a worker is (``/tests/identity``).
CloudFormation is mended in ``moto_stacks.py``.

And where it is slow: of its images it makes those that runs take alone, what never changes it looks up once, what it
forgets it does not first make again, it answers many requests on one connection, and it writes no log of them.

What only tests ask is below ``/tests/``: a clock that runs quicker or is put forward, all objects at once, to put many
objects at once, every request with whoever signed it, and all that there is kept under a name and put back later.
"""

from __future__ import annotations

import copy
import copyreg
import datetime
import functools
import hashlib
import io
import json
import pickle
import re
import sys
import tarfile
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any
from urllib.parse import parse_qsl

import moto.backends
import moto.core.responses
import moto.core.utils
import moto_stacks
from moto import server
from moto.batch.models import BatchBackend, Job, batch_backends
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.base_backend import BackendDict, BaseBackend
from moto.core.responses import BaseResponse
from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models import amis, ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.iam.access_control import PermissionResult
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.s3.exceptions import ObjectNotInActiveTierError
from moto.s3.models import FakeBucket, S3Backend, s3_backends
from moto.s3.responses import S3Response
from moto.s3.utils import ARCHIVE_STORAGE_CLASSES
from moto.sts.models import STSBackend
from werkzeug.serving import WSGIRequestHandler

_terminate_once = Instance.terminate
_dispatch = DomainDispatcherApplication.__call__
_make_environment = BatchBackend.create_compute_environment
_change_environment = BatchBackend.update_compute_environment
_delete_group = SecurityGroupBackend.delete_security_group
_caller = STSBackend.get_caller_identity
_head, _copy_part = S3Response.head_object, S3Backend.upload_part_copy
_begin, _container = Job._start_attempt, Job._container_details
_alone, _in_turn, _if_so = threading.Lock(), threading.Lock(), threading.Lock()
_load = amis.load_resource
_IMAGES = ("al2023-ami-2023", "al2023-ami-ecs-gpu-hvm")


# So begin the access keys of ECS tasks.
TASK_KEY = "AKIAEXAMPLE7"


class Clock:
    """AWS' clock: the true time until it runs quicker, or is put forward."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """The true time again."""
        self._since, self._ahead, self._speed = time.time(), 0.0, 1.0

    def now(self) -> datetime.datetime:
        """As moto wants it: of UTC, and without saying so."""
        return datetime.datetime.fromtimestamp(self.seconds(), datetime.UTC).replace(tzinfo=None)

    def seconds(self) -> float:
        """Since 1970."""
        now = time.time()
        return now + self._ahead + (now - self._since) * (self._speed - 1)

    def set(self, *, speed: float, forward_s: float) -> None:
        """Go on from the present time, quicker, or from a later one."""
        ahead = self.seconds() + forward_s
        self._since = time.time()
        self._ahead, self._speed = ahead - self._since, speed or self._speed


class Requests:
    """Every signed request since the last reset; what was uploaded is not kept."""

    _HEADERS = (
        *("if-match", "if-none-match", "x-amz-copy-source", "x-amz-target"),
        *("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"),
    )

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def note(self, environ: dict[str, Any]) -> None:
        """Keep one, and leave it as it came."""
        found = re.search(r"Credential=([^/]+)/\d+/([^/]*)/([^/]+)/aws4_request", environ.get("HTTP_AUTHORIZATION", ""))
        if found is None:
            return
        query, body = environ.get("QUERY_STRING", ""), b""
        who, region, service = found.groups()
        if service != "s3" or query.partition("=")[0] == "delete":
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
        names = {name: f"HTTP_{name.upper().replace('-', '_')}" for name in self._HEADERS}
        self.seen.append(
            {
                "who": who,
                "service": service,
                "region": region,
                "via": "cloudformation" if moto_stacks.AGENT in environ.get("HTTP_USER_AGENT", "") else "",
                "userid": identities.get(who, ""),
                "method": environ["REQUEST_METHOD"],
                "path": environ["PATH_INFO"],
                "query": query,
                "headers": {name: environ[key] for name, key in names.items() if key in environ},
                "body": body.decode("utf-8", "replace"),
                **self._state(service, region, body),
            }
        )

    def _state(self, service: str, region: str, body: bytes) -> dict[str, Any]:
        """What is true of that which a request names, before it is answered: tags, a role's boundary."""
        if service == "ec2":
            return {"tags": self._tags(region, dict(parse_qsl(body.decode())).values())}
        if service == "batch" and (name := json.loads(body or b"{}").get("jobId")):
            return {"tags": {name: dict(_job_tags(region, name))}}
        if service == "iam" and (name := dict(parse_qsl(body.decode())).get("RoleName")):
            known = [role for role in iam_backends[DEFAULT_ACCOUNT_ID]["aws"].get_roles() if role.name == name]
            return {"tags": {}, "boundary": next((role.permissions_boundary_arn for role in known), None)}
        return {"tags": {}}

    def _tags(self, region: str, words: Iterable[str]) -> dict[str, dict[str, str]]:
        """The tags that what a request names has, before it is answered."""
        backend = ec2_backends[DEFAULT_ACCOUNT_ID][region]
        ids = {word: backend.launch_template_name_to_ids.get(word, word) for word in words}
        return {word: dict(backend.tags[name]) for word, name in ids.items() if name in backend.tags}


def _job_tags(region: str, name: str) -> dict[str, str]:
    backend = batch_backends[DEFAULT_ACCOUNT_ID][region]
    job = backend.get_job_by_id(name)
    found: dict[str, str] = backend.list_tags_for_resource(job.arn) if job else {}
    return found


clock, requests = Clock(), Requests()
identities: dict[str, str] = {}  # access key -> aws:userid
kept: dict[str, tuple[list[Any], bytes, list[FunctionType]]] = {}  # name -> services, and what they held


def _terminate(self: Instance) -> Any:
    with _alone:
        if self._state.name == "terminated":
            return copy.copy(self._state)
        return _terminate_once(self)


def _free_group(self: Any, name: str | None = None, group_id: str | None = None) -> None:
    if any(group_id == group.id for eni in self.enis.values() for group in eni.group_set):
        raise DependencyViolationError(f"resource {group_id} has a dependent object")
    _delete_group(self, name, group_id)


def _environment(self: BatchBackend, *arguments: Any, **keys: Any) -> Any:
    if not keys.get("service_role"):
        keys["service_role"] = _linked_role("batch.amazonaws.com")
    return _make_environment(self, *arguments, **keys)


def _linked_role(service: str) -> str:
    """The service's own role in this account, made if it is missing."""
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    path = f"/aws-service-role/{service}/"
    known = [role for role in iam.get_roles() if role.path == path]
    return str((known or [iam.create_service_linked_role(service, "", "")])[0].arn)


def _changed_environment(self: BatchBackend, compute_environment_name: str, *arguments: Any, **keys: Any) -> Any:
    changes = keys.get("compute_resources") or {}
    found = self.get_compute_environment(compute_environment_name)
    if found is not None and found.compute_resources is not None:
        found.compute_resources.update(changes)
    return _change_environment(self, compute_environment_name, *arguments, **keys)


def _started(self: Job) -> None:
    """Each attempt is a task of its own, whose agents sign with a key of their own (``tests/aws/batch/agents.py``)."""
    _begin(self)
    assert self.latest_attempt is not None
    task = hashlib.sha256(f"{self.job_id} {len(self.attempts)}".encode()).hexdigest()[:32]
    arn = f"arn:aws:ecs:{self.backend.region_name}:{self.backend.account_id}:task/harness/{task}"
    self.latest_attempt["container"]["taskArn"] = arn
    role = (self.job_definition.container_properties or {}).get("jobRoleArn")
    ids = {each.arn: each.id for each in iam_backends[DEFAULT_ACCOUNT_ID]["aws"].get_roles()}
    identities[f"{TASK_KEY}{task[:8].upper()}"] = f"{ids[role]}:{task}"


def _details(self: Job) -> dict[str, Any]:
    current = self.latest_attempt["container"]["taskArn"] if self.latest_attempt else None
    return {**_container(self), **({"taskArn": current} if current else {})}


def _identity(self: STSBackend, access_key_id: str, region: str) -> tuple[str, str, str]:
    if (userid := identities.get(access_key_id)) is None:
        return _caller(self, access_key_id, region)
    return userid, f"arn:aws:sts::{self.account_id}:assumed-role/worker/{userid.partition(':')[2]}", self.account_id


def _unasked(_bucket: FakeBucket, _action: str, _resource: str) -> PermissionResult:
    return PermissionResult.NEUTRAL


@functools.cache
def _images(path: str) -> list[dict[str, Any]]:
    return [each for each in _load(path) if each["name"].startswith(_IMAGES)]


def _nothing_made_again(self: BaseBackend) -> None:
    """Who resets all throws all away."""


copyreg.pickle(weakref.WeakValueDictionary, lambda held: (weakref.WeakValueDictionary, (dict(held),)))


class _Pickler(pickle.Pickler):
    """Pickles a function without a name, which no import would find, as its place in ``functions``."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.functions: list[FunctionType] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, FunctionType) or "<" not in value.__qualname__ or value.__closure__:
            return None
        self.functions.append(value)
        return len(self.functions) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, functions: list[FunctionType]) -> None:
        super().__init__(io.BytesIO(content))
        self._functions = functions

    def persistent_load(self, place: int) -> FunctionType:
        return self._functions[place]


def _keep(name: str) -> None:
    """Keep all that there is under a name."""
    services, file = list(BackendDict._instances), io.BytesIO()
    pickler = _Pickler(file)
    held = [{account: dict(regions) for account, regions in service.items()} for service in services]
    pickler.dump((held, requests.seen, identities))
    kept[name] = services, file.getvalue(), pickler.functions


def _put_back(name: str) -> bytes:
    """Put back what was kept, in an AWS that was reset; return nothing if nothing was."""
    if name not in kept:
        return b""
    services, *pickled = kept[name]
    held, seen, known = _Unpickler(*pickled).load()
    requests.seen[:] = seen
    identities.update(known)
    for service, accounts in zip(services, held, strict=True):
        for account, regions in accounts.items():
            service[account].update(regions)
    return b"put back"


def _answered(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """What only tests ask."""
    query = dict(parse_qsl(environ["QUERY_STRING"]))
    answer = b""
    match environ["PATH_INFO"]:
        case "/tests/clock":
            clock.set(speed=float(query.get("speed", 0)), forward_s=float(query.get("forward_s", 0)))
        case "/tests/identity":
            identities[query["key"]] = query["userid"]
        case "/tests/pend":
            found = ec2_backends[DEFAULT_ACCOUNT_ID][query["region"]].get_instance(query["instance"])
            found._state.name, found._state.code = "pending", 0
        case "/tests/keep":
            _keep(query["name"])
        case "/tests/put-back":
            answer = _put_back(query["name"])
        case "/tests/requests":
            answer = json.dumps(requests.seen).encode()
        case "/tests/objects" if environ["REQUEST_METHOD"] == "PUT":
            _put(query["bucket"], environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        case "/tests/objects":
            answer = b"\n".join(_contents())
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(answer)))])
    return [answer]


def _contents() -> Iterable[bytes]:
    for account in list(s3_backends.values()):
        for backend in list(account.values()):
            for bucket in list(backend.buckets.values()):
                for key in list(bucket.keys.values()):
                    yield f"{bucket.name}/{key.name}".encode()
                    yield key.value


def _put(bucket: str, packed: bytes) -> None:
    """The files of a tar."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            assert content is not None
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, entry.name, content.read())


def _stated(self: S3Response, bucket_name: str, query: Any, key_name: str, headers: Any) -> Any:
    """S3 names the number of parts in a checksum of their hashes; moto does so for GET alone."""
    status, stated, body = _head(self, bucket_name, query=query, key_name=key_name, headers=headers)
    if status == 200 and "x-amz-checksum-sha256" in stated:
        key = self.backend.head_object(bucket_name, key_name)
        if key is not None and key.checksum_type == "COMPOSITE":
            stated["x-amz-checksum-sha256"] = f"{key.checksum_value}-{key.checksum_parts}"
    return status, stated, body


def _copied_part(self: S3Backend, *arguments: Any, **keys: Any) -> Any:
    """S3 copies nothing out of an archive, as moto knows of whole objects alone."""
    key = self.get_object(keys["src_bucket_name"], keys["src_key_name"])
    if key is not None and key.storage_class in ARCHIVE_STORAGE_CLASSES:
        raise ObjectNotInActiveTierError(key.name)
    return _copy_part(self, *arguments, **keys)


def _one_by_one(self: DomainDispatcherApplication, environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path.startswith("/tests/"):
        return _answered(environ, start_response)
    if path == "/moto-api/reset":
        clock.reset()
        requests.seen.clear()
        identities.clear()
    signed_for = environ.get("HTTP_AUTHORIZATION", "")
    turn: AbstractContextManager[Any] = nullcontext()
    if "/cloudformation/aws4_request" in signed_for:
        moto_stacks.caller.key = signed_for.partition("Credential=")[2].partition("/")[0]
        moto_stacks.caller.endpoint = f"http://{environ['HTTP_HOST']}"
    if "/ec2/aws4_request" in signed_for:
        turn = _in_turn
    elif environ["REQUEST_METHOD"] in ("PUT", "POST") and (
        "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ
    ):
        turn = _if_so
    with turn:
        requests.note(environ)
        return _dispatch(self, environ, start_response)


def mend() -> None:
    """Before the first request."""
    DomainDispatcherApplication.__call__ = _one_by_one
    Instance.terminate = _terminate
    FakeBucket.get_permission = _unasked
    SecurityGroupBackend.delete_security_group = _free_group
    BatchBackend.create_compute_environment = _environment
    BatchBackend.update_compute_environment = _changed_environment
    STSBackend.get_caller_identity = _identity
    S3Response.head_object = _stated
    S3Backend.upload_part_copy = _copied_part
    Job._start_attempt, Job._container_details = _started, _details
    BaseResponse.access_key_regex = re.compile(r"AWS.*?(?P<access_key>(?<![A-Z0-9])[A-Z0-9]{20,64}(?![A-Z0-9]))[:/]")
    moto_stacks.mend()
    BaseBackend.reset = _nothing_made_again
    amis.AMIS.clear()
    amis.load_resource = lambda path: copy.deepcopy(_images(path))
    folders = frozenset(moto.backends.list_of_moto_modules())
    moto.backends.list_of_moto_modules = lambda: folders
    names = functools.cache(moto.core.utils.method_names_from_class)
    moto.core.responses.method_names_from_class = names
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    WSGIRequestHandler.disable_nagle_algorithm = True
    WSGIRequestHandler.log_request = lambda *_: None
    say = WSGIRequestHandler.date_time_string
    WSGIRequestHandler.date_time_string = lambda self: say(self, clock.seconds())
    now = moto.core.utils.utcnow
    for module in list(sys.modules.values()):
        if getattr(module, "utcnow", None) is now:
            module.utcnow = clock.now


if __name__ == "__main__":
    mend()
    server.main()
