"""The context link: runs each job in a context of its own, in which ``current_message`` returns its message.

Runs in the worker process, as the outermost link. A context variable that a job sets is unset in the next.
"""

from __future__ import annotations

from contextvars import copy_context

from pyworkers.protocol.message import set_current
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.link import Run


def isolated(call_next: Run) -> Run:
    """Put the context link around ``call_next``."""

    def context(execution: Execution) -> Outcome:
        own = copy_context()
        own.run(set_current, execution.message)
        return own.run(call_next, execution)

    return context
