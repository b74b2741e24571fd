"""What botocore raises -> one line that says what, why and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import AwsError

_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
_REFUSED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden")
_UNKNOWN = (
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthFailure",
)
_BUSY = (
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "EC2ThrottledException",
    "TooManyRequestsException",
    "SlowDown",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
    # S3: the sender was too slow; somebody else was at the same thing.
    "RequestTimeout",
    "OperationAborted",
    # Answers without a body, as to HEAD.
    "500",
    "502",
    "503",
    "504",
)
# EC2 says that it has no such machine with HTTP status 500; 501 is what will never be there.
_NO_ROOM = "Insufficient"
_SKEWED = ("RequestTimeTooSkewed", "RequestInTheFuture", "InvalidSignatureException")
# Names of accounts and keys, which are nobody's business.
_ACCOUNT = re.compile(r"\b\d{12}\b")
_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Turn what botocore raises into an :class:`AwsError`.

    Args:
        what: names what was being done, e.g. ``launching c7g.large``.

    Raises:
        AwsError: with the error's code, so that callers can tell them apart.
    """
    from boto3.exceptions import Boto3Error
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    try:
        yield
    except exceptions.ClientError as error:
        raise _refused(what, error) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        raise AwsError(
            f"{what}: no AWS credentials ({error}); run `aws configure sso` or set AWS_PROFILE", "NoCredentials"
        ) from error
    except exceptions.NoRegionError as error:
        raise AwsError(f"{what}: no AWS region; set AWS_REGION or give --region", "NoRegion") from error
    except (exceptions.TokenRetrievalError, exceptions.CredentialRetrievalError, exceptions.SSOError) as error:
        raise AwsError(f"{what}: {_EXPIRED_TEXT}", "ExpiredToken") from error
    except (exceptions.HTTPClientError, exceptions.EndpointConnectionError) as error:
        raise AwsError(
            f"{what}: AWS is not reached ({concealed(str(error))}); see to the network", "Unreached"
        ) from error
    except ResponseParserError as error:
        # A proxy's or a dying server's page in the place of an answer.
        raise AwsError(f"{what}: AWS gave no answer that can be read; try again later", "Busy") from error
    except (exceptions.BotoCoreError, Boto3Error) as error:
        raise AwsError(f"{what}: {concealed(str(error))}", type(error).__name__) from error


_EXPIRED_TEXT = "the AWS credentials have expired; log in again (`aws sso login`) and give the same command once more"


def _refused(what: str, error: Exception) -> AwsError:
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", "unknown"))
    said = concealed(" ".join(str(response.get("Error", {}).get("Message", error)).split()))[:300]
    if code in _EXPIRED:
        return AwsError(f"{what}: {_EXPIRED_TEXT}", "ExpiredToken")
    if code in _REFUSED:
        return AwsError(
            f"{what}: not permitted ({said or code}); docs/ec2.md and docs/s3.md list the permissions needed",
            "AccessDenied",
        )
    if code in _UNKNOWN:
        return AwsError(f"{what}: AWS does not know these credentials ({code}); run `aws configure`", "NoCredentials")
    if code in _SKEWED:
        return AwsError(f"{what}: this machine's clock is off ({said}); set it (NTP) and try again", "ClockSkew")
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    if code in _BUSY or (status >= 500 and status != 501 and not code.startswith(_NO_ROOM)):
        return AwsError(f"{what}: AWS is busy ({code}) after several tries; give the same command again later", "Busy")
    if code == "NoSuchBucket":
        text = "there is no such bucket (NoSuchBucket); see to its name, or make it: `harness ec2 up s3://BUCKET`"
        return AwsError(f"{what}: {text}", code)
    return AwsError(f"{what}: {said or code} ({code})", code)


def concealed(text: str) -> str:
    """The text without account ids and access keys."""
    return _KEY.sub("<access key>", _ACCOUNT.sub("<account>", text))
