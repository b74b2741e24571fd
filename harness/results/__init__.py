"""What is on disk: schema, store, reader, merge, integrity."""
