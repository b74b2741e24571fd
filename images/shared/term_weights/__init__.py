"""Weights of terms for engines of learned sparse retrieval: methods, encoders of both sides, resumable builds.

``term_weights.engine`` is what an adapter derives from, ``term_weights.prepare`` what an image's build runs.
"""
