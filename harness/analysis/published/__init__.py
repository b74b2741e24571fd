"""Tables from the literature as data: read, recomputed from each other, and turned into rows of a report.

Nothing here was measured by harness: a paper prints means and no samples, so whatever needs samples says so.
"""
