"""Amazon Web Services through boto3: connections, errors as one line, and objects of S3 that are never overwritten."""
