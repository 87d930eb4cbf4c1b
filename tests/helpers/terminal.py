"""A terminal for tests: a pseudo-terminal with a program in it, as a person would run it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers import warm
from tests.helpers.processes import state
from tests.helpers.support import ROOT, wait_for

# The terminal becomes the controlling one of the session, so that it sends Ctrl-C and changes of its size.
_LOGIN = """
import os, runpy, sys
os.login_tty(1)
sys.stdin = open(0, closefd=False)
runpy.run_module("pyworkers", run_name="__main__", alter_sys=True)
"""


class Terminal:
    """``shown`` is all that the program has written, in the order in which it came."""

    def __init__(self, columns: int, lines: int) -> None:
        self._own, self._theirs = pty.openpty()
        os.set_blocking(self._own, False)
        self.resize(columns, lines)
        self.shown = b""
        self.process: warm.WarmProcess | subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        ours = ("PYWORKERS_", "REDIS_", "COLUMNS", "LINES")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env |= {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
        command, tty = ["-c", _LOGIN, *words], self._theirs
        self.process = warm.start(command, cwd=Path.cwd(), env=env, stdout=tty, stderr=tty)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def modes(self) -> list[Any]:
        """Whether it echoes, waits for whole lines …"""
        return termios.tcgetattr(self._theirs)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def interrupt(self) -> None:
        """Type Ctrl-C once the program waits for a line.

        Python notes a signal that comes between its prompt and the read, and acts on it after the read alone.
        """
        assert self.process is not None
        pid = self.process.pid
        wait_for(lambda: state(pid) == "S", message="it waits for a line")
        self.type("\x03")

    def read(self) -> bytes:
        """All that was shown until now."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.shown += os.read(self._own, 65536)
        return self.shown

    def wait_for(self, text: str, after: int = 0) -> int:
        """Wait until this is shown behind ``after`` bytes; where it ends."""
        wanted = text.encode()
        try:
            wait_for(lambda: wanted in self.read()[after:])
        except AssertionError:
            raise AssertionError(f"no {text!r} in {self.shown[after:]!r}") from None
        return self.shown.index(wanted, after) + len(wanted)

    def wait(self) -> int:
        """The exit code. The terminal is read on, so that no program waits for room in it."""
        assert self.process is not None
        process = self.process

        def ended() -> bool:
            self.read()
            return process.poll() is not None

        wait_for(ended, message="the program ends")
        self.read()
        return process.wait()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)
        os.close(self._theirs)


@contextlib.contextmanager
def terminal(*words: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """``pyworkers`` with these words in its own terminal; it is killed after the block."""
    opened = Terminal(columns, lines)
    try:
        opened.start(*words)
        yield opened
    finally:
        opened.close()
