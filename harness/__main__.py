"""The console script, and ``python -m harness``."""

import contextlib
import os
import signal
import sys

# Exit code of a stopped command.
STOPPED = 130


def start() -> None:
    """Import the commands, and run the command line; until then Ctrl-C ends the process without a word."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a traceback from the middle of an import says nothing useful
    from harness.cli import main

    signal.signal(signal.SIGINT, interrupt)
    try:
        main()
    except SystemExit as ended:
        if ended.code == STOPPED:
            # Ctrl-C may have left a lock of a library held, and exit handlers would wait for it forever.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(STOPPED)
        raise


if __name__ == "__main__":
    start()
