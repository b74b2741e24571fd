"""Questions that many jobs answer: the smallest hardware, known answers, conformance."""
