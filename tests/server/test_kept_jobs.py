"""Jobs that may not start yet, in the table of a group: given back, cancelled or settled like any other."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pyworkers.ipc import jobsocket
from pyworkers.ipc.control import Manifest
from pyworkers.ipc.jobsocket import PacketKind
from pyworkers.protocol.effects import PassSlot
from pyworkers.protocol.limits import Ask, Want
from pyworkers.protocol.outcome import CANCELLED, DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.gates import NO_ROOM, START, CancelledJobs, Decided, Decision, Gates, Settle
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.settling import Lost, Rules, Settling
from pyworkers.server.pool.worker import Workers
from tests.helpers.asks import FakeAsks
from tests.helpers.deliveries import FakeOutbox, unmarked
from tests.helpers.suspects import FakeSuspects

BARE = b'{"class":"Any","args":[],"jid":"j","queue":"q"}'
JOB = BARE + b"\t"
MANIFEST: Manifest = {
    "queues": {
        "q": {
            "kind": "process",
            "concurrency": None,
            "processes": None,
            "mode": None,
            "name": "q",
            "retry": 5,
            "dead": True,
            "is_async": False,
        }
    },
    "groups": {},
    "jobs": {},
    "handlers": ["q"],
    "cron": [],
    "hooks": {},
}


class Table:
    """The jobs of a group without workers."""

    def __init__(self) -> None:
        self.settled: list[tuple[str, bytes, Report]] = []
        self.freed = self.alone = 0
        self.suspects = FakeSuspects()
        self.asks = FakeAsks()
        self.cancellations = Cancellations()
        workers = Workers()
        rules = Rules(MANIFEST, 25, lambda: 1000.0, random.Random(1))
        outbox = FakeOutbox(self._settle, self._free)
        settling = Settling(outbox, rules, lambda _: None, unmarked)
        gates = Gates(CancelledJobs(self.cancellations), self.suspects, self.asks)
        self.jobs = JobTable(workers, settling, gates, outbox)

    def _settle(self, job: Delivery, report: Report) -> None:
        self.settled.append((job.queue, job.raw, report))

    def _free(self) -> None:
        self.freed += 1

    def apply(self) -> None:
        """Apply the events, as the pool does; ``alone`` counts those of jobs that wait to run alone."""
        events = self.jobs.workers.events
        while not events.empty():
            match events.get_nowait():
                case Decided(job, decision):
                    self.jobs.decide(job, decision)
                case _:
                    self.alone += 1

    def suspect(self, decision: Decision) -> None:
        """Decide on the oldest marked job."""
        self.suspects.decide(decision)
        self.apply()

    def grant(self) -> None:
        """Let the oldest job that asks start."""
        self.asks.grant()
        self.apply()


@pytest.fixture
@asynccontextmanager
async def table() -> AsyncIterator[Table]:
    table = Table()
    yield table
    table.jobs.close()


async def test_a_marked_job_is_known_while_it_is_kept_back_and_may_need_a_worker(table: Table) -> None:
    table.jobs.deliver("q", JOB)
    assert (table.jobs.busy, table.jobs.free, table.jobs.known("q")) == (1, -1, {JOB: 1})
    assert table.freed == 0
    table.suspect(NO_ROOM)
    assert (table.jobs.busy, table.jobs.free, table.jobs.known("q")) == (1, 0, {JOB: 1})
    assert table.freed == 1


async def test_a_marked_job_that_may_start_waits_for_a_worker_like_any_other(table: Table) -> None:
    table.jobs.deliver("q", JOB)
    table.jobs.deliver("q", BARE)
    assert (table.jobs.busy, table.jobs.free) == (2, -2)
    table.suspect(START)
    assert (table.jobs.busy, table.jobs.free) == (2, -2)
    assert table.jobs.known("q") == {JOB: 1, BARE: 1}


async def test_a_marked_job_that_has_crashed_alone_shares_no_process(table: Table) -> None:
    table.jobs.share(True)
    table.jobs.deliver("q", JOB.replace(b"}", b',"crash_count":1}'))
    table.jobs.deliver("q", JOB)
    table.suspect(START)
    assert table.alone == 1
    table.suspect(START)
    assert table.alone == 1


async def test_a_stop_leaves_a_job_that_is_kept_back_in_the_list(table: Table) -> None:
    table.jobs.deliver("q", JOB)
    table.jobs.interrupt()
    assert (table.jobs.busy, table.suspects.kept, table.settled) == (0, {}, [])


async def test_a_pause_gives_back_what_is_kept_back_and_nothing_else(table: Table) -> None:
    jobs = [BARE.replace(b'"j"', b'"%d"' % number) + b"\t" for number in range(3)]
    for raw in (*jobs, BARE):
        table.jobs.deliver("q", raw)
    table.suspect(START)
    table.suspect(NO_ROOM)
    table.jobs.give_back_held({"other"})
    assert table.settled == []
    table.jobs.give_back_held({"q"})
    assert (table.jobs.busy, table.suspects.kept) == (2, {})
    # The newest first, so that the oldest is popped first.
    assert table.settled == [("q", raw, Report(REQUEUE)) for raw in (jobs[2], jobs[1])]


async def test_jobs_are_taken_back_in_their_order(table: Table) -> None:
    for raw in (JOB, BARE, JOB, BARE):
        table.jobs.deliver("q", raw)
    assert [job.number for job in table.jobs.take_back(lambda _: True)] == [1, 2, 3, 4]
    assert (table.jobs.busy, table.suspects.kept, table.settled) == (0, {}, [])


async def test_a_job_that_is_cancelled_while_it_is_kept_back_does_not_start(table: Table) -> None:
    table.jobs.deliver("q", JOB)
    table.cancellations.use(["j"])
    table.jobs.cancel_noted()
    assert (table.jobs.busy, table.suspects.kept) == (0, {})
    assert table.settled == [("q", JOB, Report(CANCELLED, cancelled="j"))]


async def test_a_condemned_job_is_settled_and_its_hooks_run_in_a_worker(table: Table) -> None:
    failure = Failure("WorkerLost", "its server died", crashed=True, fate=Fate.DEAD)
    table.jobs.deliver("q", JOB)
    table.suspect(Settle(Lost(failure)))
    [(_, raw, report)] = table.settled
    assert (raw, report.outcome.fate, report.outcome.crashed, report.job_class) == (JOB, Fate.DEAD, True, "q")
    assert json.loads(report.outcome.payload) == {
        **json.loads(JOB),
        "error_class": "WorkerLost",
        "error_message": "its server died",
        "failed_at": 1000.0,
    }
    # The task waits for a worker.
    assert (table.jobs.busy, table.jobs.free, table.jobs.known("q")) == (1, -1, {})


# --- jobs that ask for their limits -------------------------------------------------------------------------

ASK = Ask("j", "this run", (Want("slots", 1, 0.0), Want("turns", 1, 60.0)))
FREES = (PassSlot("slots", "this run"), PassSlot("turns", "this run"))
FREED = Report(Outcome(Fate.REQUEUE, effects=FREES))


def ask(table: Table, raw: bytes = BARE) -> None:
    """A worker has taken a job, and asks whether it may start."""
    table.jobs.deliver("q", raw)
    table.apply()
    if suspect := table.jobs.next_suspect():
        ours, theirs = jobsocket.pair()
        table.jobs.send_alone(suspect, ours)
        ours.close()
        theirs.close()
    [*_, number] = table.jobs.offered
    table.jobs.asked(number, ASK)


async def test_a_job_that_asks_is_known_and_keeps_its_room(table: Table) -> None:
    ask(table)
    assert (table.jobs.busy, table.jobs.free, table.jobs.known("q")) == (1, -1, {BARE: 1})
    assert (table.jobs.offered, table.settled) == ({}, [])


async def test_a_job_that_may_start_is_handed_out_under_another_number(table: Table) -> None:
    ask(table)
    table.grant()
    [(number, job)] = table.jobs.offered.items()
    # That of the worker which has asked is still in its page.
    assert (number, job.kind, job.raw) == (2, PacketKind.GRANTED_RATED, BARE)
    table.jobs.ended(1, Report(DONE))
    table.jobs.ended(2, Report(DONE))
    assert table.settled == [("q", BARE, Report(Outcome(Fate.DONE, effects=FREES)))]


async def test_a_job_in_schedule_is_forgotten_and_leaves_room(table: Table) -> None:
    ask(table)
    table.asks.put_off()
    table.apply()
    assert (table.jobs.busy, table.jobs.free, table.freed, table.settled) == (0, 0, 1, [])


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_job_frees_its_slots(table: Table, granted: bool) -> None:
    ask(table)
    if granted:
        table.grant()
    table.cancellations.use(["j"])
    table.jobs.cancel_noted()
    outcome = Outcome(Fate.CANCELLED, effects=FREES)
    assert table.settled == [("q", BARE, Report(outcome, cancelled="j"))]
    assert (table.jobs.busy, table.asks.kept) == (0, {})


async def test_a_job_that_is_cancelled_before_it_asks_does_not_ask(table: Table) -> None:
    table.jobs.deliver("q", BARE)
    [job] = table.jobs.offered.values()
    job.cancel("j")
    table.jobs.asked(job.number, ASK)
    assert [report.outcome.fate for _, _, report in table.settled] == [Fate.CANCELLED]
    assert table.asks.kept == {}


@pytest.mark.parametrize("granted", [False, True])
async def test_a_stop_gives_back_a_job_with_its_slots(table: Table, granted: bool) -> None:
    ask(table)
    if granted:
        table.grant()
    table.jobs.interrupt()
    assert (table.settled, table.jobs.busy, table.asks.kept) == ([("q", BARE, FREED)], 0, {})


async def test_a_job_that_asks_during_a_stop_stays_in_the_list(table: Table) -> None:
    table.jobs.deliver("q", BARE)
    # A worker takes it.
    [job] = table.jobs._drain()
    table.jobs.give_back()
    table.jobs.asked(job.number, ASK)
    assert (table.settled, table.jobs.busy, table.asks.kept) == ([], 0, {})


async def test_a_pause_gives_back_a_job_that_asks(table: Table) -> None:
    ask(table)
    table.jobs.give_back_held({"q"})
    assert (table.settled, table.jobs.busy, table.asks.kept) == ([("q", BARE, FREED)], 0, {})


async def test_a_job_that_is_lost_with_its_worker_frees_its_slots(table: Table) -> None:
    ask(table)
    table.grant()
    table.jobs.lost(list(table.jobs.offered.values()), Failure("WorkerLost", "died", crashed=True))
    [(_, raw, report)] = table.settled
    assert (raw, report.outcome.fate, report.outcome.effects) == (BARE, Fate.RETRY, FREES)


async def test_a_decision_that_comes_after_a_job_was_taken_back_changes_nothing(table: Table) -> None:
    ask(table)
    table.asks.grant()
    table.jobs.give_back_held({"q"})
    table.apply()
    assert (table.settled, table.jobs.busy) == ([("q", BARE, FREED)], 0)


async def test_the_gates_of_a_job_are_in_their_order(table: Table) -> None:
    assert [gate.name for gate in table.jobs.gates] == ["cancelled", "suspects", "asks", "crashed"]


async def test_a_suspect_that_may_start_runs_alone(table: Table) -> None:
    table.jobs.share(True)
    ask(table, BARE.replace(b"}", b',"crash_count":1}'))
    assert table.alone == 1
    table.grant()
    assert table.alone == 2


async def test_an_ask_of_a_job_that_has_ended_is_ignored(table: Table) -> None:
    table.jobs.asked(7, ASK)
    assert (table.jobs.busy, table.asks.kept, table.settled) == (0, {}, [])
