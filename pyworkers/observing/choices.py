"""Choices: finds the choice of a job, or the request to it, in an exception group that holds nothing else.

Pure; used where the outcome of a job is decided, and by the integrations. A task group makes such a group of
what one of its tasks has raised.
"""

from __future__ import annotations

from pyworkers.errors import FateChosen, Interrupted, JobCancelled, JobTimeout
from pyworkers.observing.readable import readable

_KINDS = (FateChosen, Interrupted, JobCancelled, JobTimeout)


def choice_of(error: BaseException) -> BaseException:
    """The choice or the request in a group, the first of several of one class; else the exception itself.

    A group that cannot be read holds none.
    """
    try:
        found = _choice_in(error)
    except Exception:
        found = None
    return found or error


def _choice_in(error: BaseException) -> BaseException | None:
    found, waiting = list[BaseException](), [error]
    while waiting:
        one = readable(waiting.pop())
        if isinstance(one, BaseExceptionGroup):
            waiting += reversed(one.exceptions)
        elif isinstance(one, _KINDS) and type(one) is type(found[0] if found else one):
            found.append(one)
        else:
            return None
    return found[0] if found else None
