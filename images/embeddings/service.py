"""How the two servers start: that of vectors and that of embeddings."""

from vector_server import EMBEDDINGS_PORT, PORT, command

__all__ = ["EMBEDDINGS_PORT", "PORT", "command"]
