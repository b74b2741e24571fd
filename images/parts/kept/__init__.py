"""What engines keep in an index's folder in like ways: ``kept.ids``, the ids of its rows."""
