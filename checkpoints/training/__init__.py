"""Training of small checkpoints.  Runs inside an engine image that has torch and transformers, without network."""
