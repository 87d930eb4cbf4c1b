"""Routing: whether an application knows the queue that ``Job.options(queue=…)`` names.

Pure; used in programs that enqueue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.options import suggestion


def check_known(
    queue: str, declared: Collection[str], configured: Callable[[], Collection[str] | None]
) -> None:
    """Raise BadArgumentError for a queue without a handler and without a group.

    ``declared`` are the queues of the jobs, handlers and groups of the application; ``configured`` returns
    the queues of the configuration file, or None if this program knows no file. A server may have groups in a
    file that this program does not know: then only a name that is like a declared one is an error.
    """
    if queue in declared:
        return
    others = configured()
    if others is not None and queue in others:
        return
    near = suggestion(queue, (*declared, *(others or ())))
    if near or others is not None:
        names = "any_queue=True, if another application or a group of the server has it"
        hint = f"{near} Otherwise: {names}" if near else names
        raise BadArgumentError(f"the application knows no queue {queue!r}", hint=hint)
