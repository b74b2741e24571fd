"""Amazon Web Services through boto3: connections, errors as one line, and objects of S3 that are never overwritten."""

S3 = "s3://"


def is_s3(text: str) -> bool:
    """Return whether a text names a place in S3."""
    return text.startswith(S3)
