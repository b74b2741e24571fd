"""Results in S3: the same tree as on disk, mirrored into the cache to be read, and written so that nothing is ever
overwritten.

A mirror is a folder like any other, so all that reads results reads it.  Objects are the truth: each command lists them
all, and fetches what is new.
"""
