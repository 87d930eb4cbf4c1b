"""The carrying link: binds the values that a job carries to structlog's context while it runs.

Runs in the worker process, around all links, if names are configured: the line of the end has the values, and
so have the jobs that the job enqueues.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyworkers import logs
from pyworkers.protocol.flow.carrying import carried
from pyworkers.protocol.message import Message


def bind(names: Sequence[str], message: Message) -> None:
    """Bind what a job carries, in this context."""
    if names and (values := carried(message.data, names)):
        logs.bind(values)
