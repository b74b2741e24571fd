"""Errors of AWS as one line each: what, why, remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.config import page
from harness.errors import RemoteError
from harness.remote.failures import NO_STORAGE, concealed

_EXPIRED = "the AWS credentials have expired; log in again (`aws sso login`) and give the same command once more"
# Our code -> AWS' codes, and the explanation.
_KNOWN = {
    "ExpiredToken": (r"ExpiredToken(Exception)?|RequestExpired|TokenRefreshRequired", _EXPIRED),
    "AccessDenied": (
        r"AccessDenied(Exception)?|UnauthorizedOperation|403|Forbidden",
        "not permitted ({message}); {ec2} and {s3} list the permissions needed",
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
    NO_STORAGE: (
        r"NoSuchBucket",
        "the bucket does not exist ({code}); check its name, or make it: `harness ec2 up s3://BUCKET`",
    ),
}
_NOT_IMPLEMENTED = 501


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Turn errors of botocore into RemoteError; ``what`` is being done, e.g. ``launching c7g.large``."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    try:
        yield
    except exceptions.ClientError as error:
        text, code = _explained(error.response)
        raise RemoteError(f"{what}: {text}", code) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        text = f"no AWS credentials ({error}); run `aws configure sso` or set AWS_PROFILE"
        raise RemoteError(f"{what}: {text}", "NoCredentials") from error
    except exceptions.NoRegionError as error:
        raise RemoteError(f"{what}: no AWS region; set AWS_REGION or give --region", "NoRegion") from error
    except (exceptions.TokenRetrievalError, exceptions.CredentialRetrievalError, exceptions.SSOError) as error:
        raise RemoteError(f"{what}: {_EXPIRED}", "ExpiredToken") from error
    except (exceptions.HTTPClientError, exceptions.EndpointConnectionError) as error:
        text = f"AWS cannot be reached ({concealed(str(error))}); check the network"
        raise RemoteError(f"{what}: {text}", "Unreached") from error
    except ResponseParserError as error:  # the page of a proxy or of a dying server
        raise RemoteError(f"{what}: AWS gave no answer that can be read; try again later", "Busy") from error
    except (exceptions.BotoCoreError, Boto3Error) as error:
        raise RemoteError(f"{what}: {concealed(str(error))}", type(error).__name__) from error


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
    guides = {name: page(f"docs/guides/{name}.md") for name in ("ec2", "s3")}
    return _KNOWN[ours][1].format(code=code, message=message, **guides), ours
