"""Staff: the worker processes of a server, as its heartbeat shows them.

Pure; used by the master once per beat, never for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers.protocol import envelope
from pyworkers.server.pool.worker import WorkerFacts

FEW = 32
"""So many workers are shown with each heartbeat: some 2 KB. More are shown only while a viewer is active."""
# Some 60 KB in a heartbeat.
_MOST = 1000


def listed(workers: Sequence[WorkerFacts], kb_of: Callable[[int], int], *, watched: bool) -> str:
    """The workers as JSON; empty if they are many and there is no viewer."""
    if len(workers) > FEW and not watched:
        return ""
    return envelope.encode(
        [
            [
                worker.group,
                worker.pid,
                worker.state,
                kb_of(worker.pid),
                worker.jobs_done,
                int(worker.started_at),
            ]
            for worker in workers[:_MOST]
        ]
    )
