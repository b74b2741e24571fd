"""The ColBERT engine (colbert-ai): checkpoints, encoding, indexing and search, held to the envelope."""
