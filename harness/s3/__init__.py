"""Results in S3: the tree of a results folder, mirrored into the cache to be read.

The objects are the truth: each command lists all of them, and fetches the new ones.
"""
