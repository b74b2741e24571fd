"""harness: measure the cost and the effectiveness of retrieval systems.

``harness.load(results)`` gives stored results as a data frame, ``harness.load_samples(results)`` their raw samples.
"""

__version__ = "0.1.0"

_LATER = ("load", "load_samples")


def __getattr__(name: str) -> object:
    """Import a function that needs pandas when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    import importlib

    from harness import extras

    extras.require("pandas")
    return getattr(importlib.import_module("harness.api"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_LATER))
