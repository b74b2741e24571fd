"""Results on disk: schema, store, reader, merge, integrity."""
