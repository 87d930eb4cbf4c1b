"""The guard around the end of one job: whatever fails in it, the master goes on."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from pyworkers.protocol.effects import PassSlot
from pyworkers.protocol.outcome import DONE, Fate, Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.settling import Endings, Rules

MANIFEST = cast(Any, {"queues": {}, "jobs": {}, "hooks": {}})
SLOT = PassSlot("limit", "member")
DIED = Failure("WorkerLost", "died", crashed=True)
ENDS: dict[str, tuple[Any, Fate]] = {
    "ended": (lambda endings, job: endings.ended(job, Report(DONE)), Fate.DEAD),
    "lost": (lambda endings, job: endings.lost(job, DIED), Fate.DEAD),
    "cancelled": (lambda endings, job: endings.cancelled(job), Fate.DEAD),
    "bystander": (lambda endings, job: endings.bystander(job), Fate.REQUEUE),
    "left": (lambda endings, job: endings.left(job), Fate.REQUEUE),
    "abandoned": (lambda endings, job: endings.abandoned(job), Fate.REQUEUE),
    "untaken": (lambda endings, job: endings.untaken([job]), Fate.REQUEUE),
}


@pytest.mark.fault("P9")
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_fails_is_that_of_its_job_alone(end: str, failures: int) -> None:
    settled: list[Report] = []
    calls = iter(range(10))

    def settle(_job: Delivery, report: Report) -> None:
        if next(calls) < failures:
            raise ValueError("odd")
        settled.append(report)

    decide = Rules(MANIFEST, 25, lambda: 1e9, random.Random(1))
    job = Delivery(1, "q", b'{"class": "job", "args": [], "jid": "j"}')
    job.at_end = (SLOT,)
    call, fate = ENDS[end]
    call(Endings(settle, lambda _: None, decide, lambda _: None), job)
    # If it cannot be settled at all, it stays in its in-progress list.
    assert [report.outcome.fate for report in settled] == [fate] * (failures == 1)
    assert all(SLOT in report.outcome.effects for report in settled)
