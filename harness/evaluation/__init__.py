"""Runs and qrels -> measures."""
