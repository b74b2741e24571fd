"""The console script, and ``python -m harness``."""

import signal


def start() -> None:
    """Import the commands, and run the command line; until then Ctrl-C ends the process without a word."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a traceback from the middle of an import says nothing useful
    from harness.cli import main

    signal.signal(signal.SIGINT, interrupt)
    main()


if __name__ == "__main__":
    start()
