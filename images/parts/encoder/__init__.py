"""Transformer encoders for engines: one checkpoint, one head, one of several inference backends.

``encoder.model`` is what an adapter uses, ``encoder.prepare`` what the build of a system's image runs, and
``encoder.shards`` resumable work over a corpus.
"""
