"""Chroma's server: ``python3 -m chroma_server --path FOLDER --host ADDRESS --port PORT``.

It is a compiled library as a whole; the Python package around it, with all that it needs, is a client and is not
imported.
"""

import sys

import chromadb_rust_bindings

if __name__ == "__main__":
    chromadb_rust_bindings.cli(["chroma", "run", *sys.argv[1:]])
