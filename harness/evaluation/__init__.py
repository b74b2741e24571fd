"""Evaluate runs by qrels: TREC files, measures, pools, leakage, Frechet distances."""
