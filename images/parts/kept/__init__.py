"""What engines keep in an index's folder in like ways: ids of its rows (``ids``), what it was made with."""
