"""The client of a server of embeddings and of a server of exact search by faiss."""

from vector_server.engine import Embeddings

ENGINE = Embeddings
