"""Run a command on a terminal, and read its screen as a person does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len

# What bars and colours need: up, erase a line, show and hide the cursor, colours; and any other text.
_PART = re.compile(r"\x1b\[(?P<number>\??[\d;]*)(?P<letter>[A-Za-z])|(?P<end>[\r\n])|(?P<text>[^\x1b\r\n]+)")


class Screen:
    """The lines of a terminal, scrolled ones included.  It refuses a line that is wider than the terminal."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines = [""]
        self.cursor_shown = True
        self._row = 0
        self._from_start = True  # the next text replaces the line

    def feed(self, output: str) -> None:
        """Take output."""
        place = 0
        for part in _PART.finditer(output):
            assert part.start() == place, f"unknown to this terminal: {output[place : place + 20]!r}"
            place = part.end()
            if part["text"]:
                self._write(part["text"])
            elif part["end"] == "\n":
                self._row += 1
                self.lines += [""] * (self._row + 1 - len(self.lines))
            elif part["end"] == "\r":
                self._from_start = True
            else:
                self._control(part["number"], part["letter"])

    def _write(self, text: str) -> None:
        before = "" if self._from_start else self.lines[self._row]
        self.lines[self._row] = before + text
        self._from_start = False
        assert cell_len(self.lines[self._row]) <= self.width, self.lines[self._row]

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            self._row -= int(number or 1)
        elif letter == "K":
            assert number == "2"
            self.lines[self._row] = ""
        elif number == "?25":
            self.cursor_shown = letter == "h"
        else:
            assert letter == "m", f"unknown to this terminal: {number}{letter}"


class Command:
    """A command on a terminal of its own, as wide as asked."""

    def __init__(self, words: Sequence[str], folder: Path, width: int, variables: Mapping[str, str] = {}) -> None:
        self.screen = Screen(width)
        self._rest = b""
        self._child, self._terminal = pty.fork()
        if not self._child:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            os.chdir(folder)
            os.execvpe(words[0], words, {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", **variables})

    def output(self) -> Iterator[str]:
        """Yield the output as it comes; the screen has its whole lines."""
        while True:
            try:
                new = os.read(self._terminal, 1 << 16)
            except OSError:  # the last process that had the terminal has ended
                break
            whole, end, self._rest = (self._rest + new).rpartition(b"\n")
            self.screen.feed((whole + end).decode())
            yield new.decode("utf-8", "replace")
        self.screen.feed(self._rest.decode())
        self._rest = b""

    def press_ctrl_c(self) -> None:
        """Send what the key sends."""
        os.write(self._terminal, b"\x03")

    def end(self) -> int:
        """Read to the end; return the exit code."""
        for _ in self.output():
            pass
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
