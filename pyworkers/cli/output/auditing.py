"""Auditing: the lines of commands in the audit, which also has the actions in the dashboard."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from pyworkers.api import AuditEntry, AuditLog
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, RedisUnavailableError


@dataclass(slots=True)
class Noted:
    """An action under way, which has no line in the audit before it changes something or ends."""

    _changed: int | None = None
    _result: str = ""

    def has_changed(self, number: int) -> None:
        """Note what the action is known to have changed so far; 0: it begins to."""
        self._changed = number

    def end(self, result: str) -> None:
        """Note the result of the whole action."""
        self._result = result

    def result(self, error: BaseException | None) -> str:
        """The result in the audit, of an action that ``error`` has ended perhaps; empty without a line."""
        if self._result or self._changed is None:
            return self._result
        if self._changed:
            return f"at least {self._changed}"
        # Without an answer of Redis, it may have been done; at Ctrl-C, too.
        if isinstance(error, PyworkersError) and not isinstance(error, RedisUnavailableError):
            return f"failed: {error.message}"
        return "perhaps done"


@contextmanager
def noting(redis: RedisConfig, action: str, target: str, undo: str = "") -> Iterator[Noted]:
    """Add one action of several at its end, so that an error or Ctrl-C later loses no line."""
    noted, ended_by = Noted(), None
    try:
        yield noted
    except BaseException as error:
        ended_by = error
        raise
    finally:
        if result := noted.result(ended_by):
            note(redis, action, target, result, undo)


def note(redis: RedisConfig, action: str, target: str, result: str, undo: str = "") -> None:
    """Add an action, ``queue.pause`` for example. Who may not write the audit does without."""
    try:
        AuditLog(redis).record(AuditEntry(_user(), socket.gethostname(), action, target, result, undo=undo))
    except PyworkersError as error:
        if error.code != "NOPERM":
            click.echo(f"Not in the audit: {printable(error.message)}", err=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}"
