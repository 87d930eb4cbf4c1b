"""Checkpoint: the rule of jobs with a saved value, which is deleted with the job.

Pure. The field ``checkpoint`` is written into the envelope of a job that failed and is retried.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyworkers.protocol.effects import DeleteIteration, Effect
from pyworkers.protocol.flow.ending import Ended
from pyworkers.protocol.flow.track import fits

FIELD = "checkpoint"


def effects(ended: Ended) -> Iterable[Effect]:
    """The effects of the end of a run, or of a wait."""
    if ended.ending.final and fits(ended.jid):
        yield DeleteIteration(ended.jid)
