"""Frechet distance for sparse labels: how far what a system retrieves lies from what was judged relevant.

Arabzadeh and Clarke, *Frechet Distance for Offline Evaluation of Information Retrieval Systems with Sparse Labels*
(EACL 2024).  See docs/method/frechet.md.
"""
