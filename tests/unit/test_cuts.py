"""Which outcome is the reason that Redis, or a proxy, ends the connection."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.effects import PassSlot, Unlock
from pyworkers.protocol.outcome import DONE, Fate, Outcome, Report
from pyworkers.server.fetching.large import Cuts
from pyworkers.server.pool.outbox import Outbox, Portion
from tests.helpers.deliveries import delivery

LOST = RedisUnavailableError("the connection is lost", code="UNREACHABLE")


class Redis:
    """Answers calls without outcomes, unless it is away."""

    away = False

    async def exchange(self, *_: object) -> None:
        if self.away:
            raise LOST


class Sender:
    def __init__(self) -> None:
        self.redis = Redis()
        self.outbox = Outbox()
        self.cuts = Cuts(self.outbox, cast(Any, None))

    async def send(self, *, lost: bool, meanwhile: bytes = b"") -> Portion:
        """Send a portion; the job ``meanwhile`` ends during the call."""
        portion = self.cuts.portion()

        async def call() -> Any:
            if meanwhile:
                self.outbox.settle(delivery(meanwhile), Report(DONE))
            if lost:
                raise LOST

        if lost:
            with pytest.raises(RedisUnavailableError):
                await self.cuts.watch(cast(Any, self.redis), portion, call())
        else:
            await self.cuts.watch(cast(Any, self.redis), portion, call())
            self.outbox.taken(portion)
        return portion


async def test_losses_that_are_not_in_a_row_bury_nothing() -> None:
    sender = Sender()
    sender.outbox.settle(delivery(b"job"), Report(DONE))
    for number in range(6):
        await sender.send(lost=True)
        [job] = await sender.send(lost=False, meanwhile=b"other %d" % number)
        assert job.report.outcome is DONE


async def test_an_outage_buries_nothing() -> None:
    sender = Sender()
    sender.redis.away = True
    sender.outbox.settle(delivery(b"job"), Report(DONE))
    for _ in range(10):
        await sender.send(lost=True)
    [job] = await sender.send(lost=False)
    assert (job.raw, job.report.outcome) == (b"job", DONE)


async def test_the_one_that_is_lost_alone_twice_is_dead_and_keeps_what_the_server_does() -> None:
    sender = Sender()
    slot, lock = PassSlot("limit", "member"), Unlock("lock", "jid")
    large = Outcome(Fate.RETRY, 1.0, b"large", failed=True, effects=(slot, lock))
    raw = b'{"class":"Large","args":[],"jid":"j1"}'
    sender.outbox.settle(delivery(raw), Report(large))
    sender.outbox.settle(delivery(b"other"), Report(DONE))
    for _ in range(2):
        assert len(await sender.send(lost=True)) == 2
    with capture_logs() as logged:
        for _ in range(2):
            assert [job.raw for job in await sender.send(lost=True)] == [raw]
    [job, _] = await sender.send(lost=False)
    outcome = job.report.outcome
    assert (job.raw, outcome.fate, outcome.payload, outcome.effects) == (raw, Fate.DEAD, b"", (slot,))
    assert not len(sender.outbox)
    [line] = logged
    assert (line["event"], line["jid"], line["job_class"]) == ("job.unsettled", "j1", "Large")


async def test_one_that_is_lost_by_its_own_bytes_stops_no_other() -> None:
    sender = Sender()
    sender.outbox.settle(delivery(b"job"), Report(Outcome(Fate.RETRY, 1.0, b"large", failed=True)))
    for _ in range(8):
        await sender.send(lost=True)
    assert not len(sender.outbox)
    # It is not taken for a stray, which would run again.
    assert sender.outbox.raws("q") == [b"job"]
