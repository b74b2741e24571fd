"""Runs on other machines: ship inputs, have workers started, fetch their jobs.

The command and its workers exchange objects below one *work place* (:mod:`harness.remote.records`) of a storage
(:mod:`harness.remote.storage`).  A backend (:mod:`harness.remote.backend`) starts the workers.
"""
