"""The ends of jobs that no worker reports: what is added to each, and what happens if that fails."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from pyworkers.protocol.effects import PassSlot
from pyworkers.protocol.outcome import DONE, Fate, Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.settling import (
    Bystander,
    CancelRequested,
    Cause,
    Left,
    Lost,
    Rules,
    Settling,
    Untaken,
)
from tests.helpers.deliveries import FakeOutbox, unmarked

MANIFEST = cast(Any, {"queues": {}, "jobs": {}, "hooks": {}})
SLOT = PassSlot("limit", "member")
ENDS: dict[Cause | None, Fate] = {
    None: Fate.DEAD,
    Lost(Failure("WorkerLost", "died", crashed=True)): Fate.DEAD,
    CancelRequested(): Fate.DEAD,
    Bystander(): Fate.REQUEUE,
    Left(): Fate.REQUEUE,
    Left(killed=True): Fate.REQUEUE,
    Untaken(): Fate.REQUEUE,
}


@pytest.mark.fault("P9")
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("cause", ENDS, ids=str)
async def test_an_end_that_fails_is_that_of_its_job_alone(cause: Cause | None, failures: int) -> None:
    settled: list[Report] = []
    calls = iter(range(10))

    def settle(_job: Delivery, report: Report) -> None:
        if next(calls) < failures:
            raise ValueError("odd")
        settled.append(report)

    rules = Rules(MANIFEST, 25, lambda: 1e9, random.Random(1))
    settling = Settling(FakeOutbox(settle), rules, lambda _: None, unmarked)
    job = Delivery(1, "q", b'{"class": "job", "args": [], "jid": "j"}')
    job.hold((SLOT,), ())
    if cause is None:
        settling.ended(job, Report(DONE))
    elif cause == Untaken():
        settling.give_back([job])
    else:
        settling.settle(job, cause)
    # If it cannot be settled at all, it stays in its in-progress list.
    assert [report.outcome.fate for report in settled] == [ENDS[cause]] * (failures == 1)
    assert all(SLOT in report.outcome.effects for report in settled)


def keep_place(_job: Delivery, report: Report) -> Report:
    return report


def test_the_steps_of_an_end_are_in_their_order() -> None:
    rules = Rules(MANIFEST, 25, lambda: 1e9, random.Random(1))
    settling = Settling(cast(Any, None), rules, lambda _: None, unmarked, keep_place)
    names = [step.__name__ for step in (*settling.unreported, *settling.steps)]
    assert names == ["_add_flow", "_drop_checkpoint", "_free_limits", "keep_place", "unmarked"]
