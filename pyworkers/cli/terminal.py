"""Full-screen terminal: uses the whole screen inside a block, and restores the terminal after it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from types import FrameType

# xterm's sequences, which all current terminals know: alternate screen, no cursor, no wrapping of long lines.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HEADER, _PLAIN = "\x1b[7m", "\x1b[0m"
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """The terminal of this process; use it inside ``held`` only."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        self._woken, self._wakeup = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakeup, False)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Set up the terminal; restore it when the block ends, also after an error, SIGTERM or SIGHUP."""
        handlers = {number: signal.signal(number, _exit) for number in _ENDING}
        handlers |= {number: signal.signal(number, _note) for number in (signal.SIGWINCH, signal.SIGTSTP)}
        wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        try:
            self._enter()
            yield
        finally:
            self._leave()
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._woken)
            os.close(self._wakeup)

    def size(self) -> tuple[int, int]:
        """The current columns and lines."""
        size = os.get_terminal_size(self._output)
        return (size.columns, size.lines) if size.columns and size.lines else (80, 24)

    def draw(self, lines: Sequence[str]) -> None:
        """Show printable lines from the top; the first one is the header."""
        placed = [f"\x1b[{number};1H{line}\x1b[K" for number, line in enumerate(lines[1:], 2)]
        self._write(f"\x1b[H{_HEADER}{lines[0]}{_PLAIN}\x1b[K{''.join(placed)}\x1b[J")

    def wait(self, timeout_s: float) -> str:
        """The next key; empty after the timeout, or at once when the terminal is resized."""
        deadline = time.monotonic() + timeout_s
        while (remaining := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self._input, self._woken], [], [], remaining)
            if self._woken in ready:
                if signal.SIGTSTP in os.read(self._woken, 4096):
                    self._suspend()
                return ""
            if self._input in ready:
                # End of input: the terminal is closed.
                return os.read(self._input, 1).decode(errors="replace") or "q"
        return ""

    def _enter(self) -> None:
        tty.setcbreak(self._input)
        self._write(_ENTER)

    def _leave(self) -> None:
        # The terminal may be closed.
        with contextlib.suppress(OSError, termios.error):
            self._write(_LEAVE)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _suspend(self) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._output, data) :]


def _note(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: ``wait`` reads the signal's number from the wakeup pipe."""


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
