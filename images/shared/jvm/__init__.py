"""Lucene through Anserini, for every engine that stands on it.

The indexer runs as a process of its own; the searcher runs in this process, over JNI.
"""
