"""Errors of AWS as one line each (what, why, remedy), and retries of passing errors."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from harness.errors import AwsError

log = logging.getLogger(__name__)

# May be over with the next try; says nothing about whether the request was carried out.
PASSING = frozenset({"Busy", "Unreached"})
# The user logs in or sets the clock, and gives the command again.
OURS_TO_MEND = frozenset({"ExpiredToken", "NoCredentials", "ClockSkew", "NoRegion"})
# Passing errors in a row before giving up: five minutes at the usual interval, each with boto3's own retries.
MOST_FAILURES = 30
_ATTEMPTS = 6
_PAUSE_S = 0.1

_EXPIRED = "the AWS credentials have expired; log in again (`aws sso login`) and give the same command once more"
# Our code -> AWS' codes, and the explanation.
_KNOWN = {
    "ExpiredToken": (r"ExpiredToken(Exception)?|RequestExpired|TokenRefreshRequired", _EXPIRED),
    "AccessDenied": (
        r"AccessDenied(Exception)?|UnauthorizedOperation|403|Forbidden",
        "not permitted ({message}); docs/guides/ec2.md and docs/guides/s3.md list the permissions needed",
    ),
    "NoCredentials": (
        r"InvalidClientTokenId|UnrecognizedClientException|InvalidAccessKeyId|SignatureDoesNotMatch|AuthFailure",
        "AWS does not know these credentials ({code}); run `aws configure`",
    ),
    "ClockSkew": (
        r"RequestTimeTooSkewed|RequestInTheFuture|InvalidSignatureException",
        "this machine's clock is off ({message}); set it (NTP) and try again",
    ),
    "Busy": (
        # S3: RequestTimeout: we sent too slowly; OperationAborted: another request; 50x: answers to HEAD.
        r"\w*Throttl\w*|RequestLimitExceeded|TooManyRequestsException|SlowDown|InternalError|InternalFailure"
        r"|(Service)?Unavailable|RequestTimeout|OperationAborted|50[0234]",
        "AWS is busy ({code}) after several tries; give the same command again later",
    ),
    "NoSuchBucket": (
        r"NoSuchBucket",
        "there is no such bucket ({code}); see to its name, or make it: `harness ec2 up s3://BUCKET`",
    ),
}
_NOT_IMPLEMENTED = 501
_ACCOUNT = re.compile(r"\b\d{12}\b")
_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")

Answer = TypeVar("Answer")


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Turn errors of botocore into AwsError; ``what`` is being done, e.g. ``launching c7g.large``."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    try:
        yield
    except exceptions.ClientError as error:
        text, code = _explained(error.response)
        raise AwsError(f"{what}: {text}", code) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        text = f"no AWS credentials ({error}); run `aws configure sso` or set AWS_PROFILE"
        raise AwsError(f"{what}: {text}", "NoCredentials") from error
    except exceptions.NoRegionError as error:
        raise AwsError(f"{what}: no AWS region; set AWS_REGION or give --region", "NoRegion") from error
    except (exceptions.TokenRetrievalError, exceptions.CredentialRetrievalError, exceptions.SSOError) as error:
        raise AwsError(f"{what}: {_EXPIRED}", "ExpiredToken") from error
    except (exceptions.HTTPClientError, exceptions.EndpointConnectionError) as error:
        text = f"AWS is not reached ({concealed(str(error))}); see to the network"
        raise AwsError(f"{what}: {text}", "Unreached") from error
    except ResponseParserError as error:  # the page of a proxy or of a dying server
        raise AwsError(f"{what}: AWS gave no answer that can be read; try again later", "Busy") from error
    except (exceptions.BotoCoreError, Boto3Error) as error:
        raise AwsError(f"{what}: {concealed(str(error))}", type(error).__name__) from error


@contextmanager
def ignoring(*codes: str) -> Iterator[None]:
    """Leave the block on an AwsError of one of these codes."""
    try:
        yield
    except AwsError as error:
        if error.code not in codes:
            raise


def _explained(response: Mapping[str, Any]) -> tuple[str, str]:
    """Return an error answer's explanation, and our code for it."""
    code = str(response.get("Error", {}).get("Code", "unknown"))
    message = concealed(" ".join(str(response.get("Error", {}).get("Message") or code).split()))[:300]
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    # EC2 says that it has no such machine with status 500.
    busy = status >= 500 and status != _NOT_IMPLEMENTED and not code.startswith("Insufficient")
    codes = (ours for ours, (pattern, _) in _KNOWN.items() if re.fullmatch(pattern, code))
    ours = next(codes, "Busy" if busy else None)
    if ours is None:
        return f"{message} ({code})", code
    return _KNOWN[ours][1].format(code=code, message=message), ours


def concealed(text: str) -> str:
    """Return a text without account ids and access keys."""
    return _KEY.sub("<access key>", _ACCOUNT.sub("<account>", text))


def _back_off(failures: int, _error: AwsError) -> None:
    time.sleep(_PAUSE_S * 2**failures)


def retry(
    call: Callable[[], Answer],
    transient: Collection[str] | None,
    attempts: int = _ATTEMPTS,
    between: Callable[[int, AwsError], None] = _back_off,
) -> Answer:
    """Return the value of ``call``; call again after errors of ``transient`` codes, at most ``attempts`` times.

    ``transient`` is ``None`` for all codes.  ``between`` is called before each further attempt, with the number of
    failures so far and the last one.
    """
    for failures in range(1, attempts):
        try:
            return call()
        except AwsError as error:
            if transient is not None and error.code not in transient:
                raise
            between(failures, error)
    return call()


def until_answered(ask: Callable[[], Answer], wait: Callable[[], None]) -> Answer:
    """Return the value of ``ask``; log the first passing error, and wait after each."""

    def between(failures: int, error: AwsError) -> None:
        if failures == 1:
            log.info(f"{error} - trying on")
        wait()

    return retry(ask, PASSING, MOST_FAILURES + 1, between)
