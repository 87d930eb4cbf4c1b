"""Successor: the process of a new server, started by the one that it replaces.

Used in the old master; ``predecessor.py`` is the other side. The new server is a child, with no lifeline: it
continues when the old one ends. Nothing here stops the old server.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from pyworkers.server.generations import filelimit
from pyworkers.server.generations.folder import Folder
from pyworkers.server.generations.launch import Executed
from pyworkers.server.upgrade.predecessor import READY, VARIABLE

_PIECE = 1 << 16
# Of the new server's output: enough for a traceback, and within the limit of a log field.
_TAIL = 4000


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of a server, and the folder in which it was started.

    ``bind`` is the address of the HTTP endpoint in the configuration.
    """

    arguments: tuple[str, ...]
    folder: Folder
    bind: str


class Successor:
    """A new server from the installed code. It inherits stdin, stdout, stderr and the listening socket."""

    def __init__(self, command: CommandLine, listener: int) -> None:
        """Start the process; ``listener`` is -1 without a socket. Raises OSError."""
        command.folder.enter()
        stderr = os.dup(2)
        self._pipe, theirs = os.pipe()
        self._output = b""
        try:
            self.process = Executed(
                command.arguments,
                env=os.environ | {VARIABLE: f"{stderr} {listener} {command.bind}"},
                stderr=theirs,
                pass_fds=[fd for fd in (stderr, listener) if fd >= 0],
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
            os.close(stderr)
        filelimit.give_back(self.process.pid)
        os.set_blocking(self._pipe, False)

    def read(self) -> bool:
        """Read all that it has written; True if it is ready."""
        with suppress(BlockingIOError):
            while piece := os.read(self._pipe, _PIECE):
                self._output = (self._output + piece)[-_TAIL:]
        return READY in self._output

    @property
    def output(self) -> str:
        """The end of its stderr from before it served, and the error that has ended it."""
        return self._output.replace(READY, b"").decode(errors="backslashreplace").strip()

    @property
    def end(self) -> str:
        """How its process has ended."""
        code = self.process.returncode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def signal(self, number: int) -> None:
        """Send a signal, if the process has not ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def close(self) -> None:
        """Close the pipe; the process continues."""
        os.close(self._pipe)
