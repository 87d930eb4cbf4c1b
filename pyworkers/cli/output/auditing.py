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
from pyworkers.errors import PyworkersError


@dataclass(slots=True)
class Noted:
    """An action under way; ``result`` is None until something is changed or found unchanged."""

    result: str | None = None

    def end(self, result: str) -> None:
        """Note what the action has changed so far."""
        self.result = result


@contextmanager
def noting(redis: RedisConfig, action: str, target: str, undo: str = "") -> Iterator[Noted]:
    """Add one action of several at its end, so that an error or Ctrl-C later loses no line."""
    noted = Noted()
    try:
        yield noted
    finally:
        if noted.result is not None:
            note(redis, action, target, noted.result, undo)


def note(redis: RedisConfig, action: str, target: str, result: str, undo: str = "") -> None:
    """Add an action, ``queue.pause`` for example. Who may not write the audit does without."""
    try:
        AuditLog(redis).record(AuditEntry(_user(), socket.gethostname(), action, target, result, undo=undo))
    except PyworkersError as error:
        if error.code != "NOPERM":
            click.echo(f"Not in the audit: {printable(error.message)}", err=True)


def cut_off(changed: int) -> str:
    """The result of a change that an error or Ctrl-C cuts off, with what is known to be changed."""
    return f"at least {changed}" if changed else "perhaps done"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}"
