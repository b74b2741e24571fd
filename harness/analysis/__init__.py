"""Stored jobs -> rows -> comparisons: statistics, validity, pricing of rows, leaderboards."""
