"""harness: what a retrieval system costs and what it is worth.

This file is copied into every system image, so it imports nothing.
"""

__version__ = "0.1.0"
