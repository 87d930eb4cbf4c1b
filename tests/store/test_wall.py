"""What a producer writes never ends a worker or a master: odd values in each field, at each end of a job."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from pyworkers import JobCancelled, Snooze, Worker
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind
from pyworkers.protocol.outcome import Fate, Outcome, Report, Reports
from pyworkers.protocol.suspects import MARK, deleting_entry
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.outbox import Outbox
from pyworkers.server.pool.settling import Bystander, Left, Lost, Rules, Settling, died, timed_out
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime
from pyworkers.worker.chains import Chains
from pyworkers.worker.execution import Channel
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.steps.timelimit import Alarm
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.deliveries import delivery
from tests.helpers.owner import Owner
from tests.unit.test_rules import MANIFEST

NOW = 1_795_225_197.5
SURROGATE = "\ud800"
DEEP = json.loads("[" * 90 + "]" * 90)
ODD: list[Any] = [
    SURROGATE, "", "x" * 70_000, "\0", 0, -1, 10**400, 2**63, 1e308, True, False, None, [], [[]], {}, DEEP,
    [SURROGATE], {SURROGATE: SURROGATE}, {"name": SURROGATE, "slot": 10**30}, {"name": "x", "slot": True},
    [{"queue": "q", "class": SURROGATE, "args": [SURROGATE], "created_at": 10**400, "expiry": 1.5}],
    [{"queue": SURROGATE}, 7, None], [[{"queue": "q", "args": 7}], SURROGATE],
]  # fmt: skip
FIELDS = [
    "batch", "batch_index", "then", "unique_key", "unique_until", "unique_for", "track", "history", "expiry",
    "limits", "limited", "tags", "retry", "retry_for", "retry_count", "retry_queue", "crash_count", "misfits",
    "dead", "backtrace", "encrypted", "cron", "queue", "jid", "class", "args", "created_at", "enqueued_at",
    "failed_at", "retried_at", "error_message", "error_class", "error_backtrace", "timeout", "log_context",
    "iteration", "pyworkers_iteration", "locale", "cattr", "wrapped", "fill", "lock_ttl",
]  # fmt: skip
# Fields that are read together with the odd one.
ALONGSIDE = {
    "batch": "b" * 24,
    "batch_index": 0,
    "then": [{"queue": "next", "class": "N", "args": []}],
    "unique_key": "k",
    "track": 60,
    "history": True,
    "cron": {"name": "nightly", "slot": 7},
}
WORKER_ENDS = ["done", "failed", "retried", "dead", "expired", "cancelled", "snoozed"]
MASTER_ENDS = ["lost", "overdue", "recovered", "revoked", "bystander", "abandoned"]


class Bench(RedisBench):
    async def prepare(self) -> None:
        await self.redis.hset(self.keys.owners, "host:1:aaa", '["q"]')
        self.store = Owner(self.connection(), self.keys, "host:1:aaa")


bench = bench_fixture(Bench)


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def app() -> Worker:
    worker = Worker()

    def job(name: str, error: Exception | None = None, **options: Any) -> None:
        def run(*_: Any) -> Any:
            if error is not None:
                # The traceback of one that is raised again would grow.
                raise error.with_traceback(None)
            return {"text": SURROGATE}

        worker.job(name=name, queue="q", **options)(run)

    job("done")
    job("expired")
    job("failed", ValueError(SURROGATE), retry=False)
    job("retried", ValueError(SURROGATE))
    job("dead", ValueError(SURROGATE), retry=0)
    job("cancelled", JobCancelled("asked"))
    job("snoozed", Snooze(5))
    return worker


def payloads(job_class: str) -> Iterator[bytes]:
    """Each odd value in each field: in those of ours that have rules alone, in all others together."""
    base: dict[str, Any] = {"class": job_class, "args": [1], "queue": "q"}
    if job_class == "expired":
        base["expiry"] = 1
    for turn in range(len(ODD)):
        odd = {field: ODD[(turn + place) % len(ODD)] for place, field in enumerate(FIELDS)}
        named = {"jid": f"{turn:024}", "class": job_class} | ({"expiry": 1} if job_class == "expired" else {})
        yield json.dumps(base | odd | named).encode()
        for field in (*ALONGSIDE, "jid"):
            yield json.dumps(base | {"jid": f"{turn:024}"} | ALONGSIDE | {field: ODD[turn]}).encode()


async def take(bench: Bench, raws: list[bytes]) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), *raws)
    taken = await bench.store.exchange("q", [], len(raws), NOW)
    assert len(taken.jobs) == len(raws)


async def settle(bench: Bench, outbox: Outbox) -> list[Report]:
    reports = []
    while outbox:
        portion = outbox.portion()[:500]
        found = await bench.store.exchange("q", [(job.raw, job.report.outcome) for job in portion], 0, NOW)
        assert (found.stale, found.error) == ([], None)
        assert [place for place in found.left if place < len(portion)] == []
        reports += [job.report for job in portion]
        rest = outbox.portion()[len(portion) :]
        outbox.clear()
        for job in rest:
            outbox.settle(delivery(job.raw, job.queue), job.report)
    assert await bench.store.inprogress("q") == []
    return reports


def serial(worker: Worker) -> SerialRunner:
    runtime = Runtime(Bridge(), 25, time.time, random.Random(1), redis_clock=lambda: NOW, timer=Alarm)
    return SerialRunner(Chains(worker, Settings(), runtime, Channel(lambda *_: None)))


def outbox_and_settling() -> tuple[Outbox, Settling]:
    outbox, rules = Outbox(), Rules(MANIFEST, 25, lambda: NOW, random.Random(1))
    return outbox, Settling(outbox, rules, lambda _: None, of_marked)


def of_marked(job: Delivery, report: Report) -> Report:
    return report._replace(outcome=deleting_entry(job.raw, report.outcome)) if job.marked else report


@pytest.mark.fault("P9")
@pytest.mark.parametrize("end", WORKER_ENDS)
async def test_odd_fields_do_not_change_how_a_worker_ends_a_job(bench: Bench, end: str) -> None:
    runner = serial(app())
    raws = list(payloads(end))
    await take(bench, raws)
    outbox, settling = outbox_and_settling()
    read = Reports(["", *WORKER_ENDS]).read

    def run() -> None:
        for number, raw in enumerate(raws, 1):
            report = runner.run(Packet(number, PacketKind.JOB, b"q", raw))
            settling.ended(Delivery(number, "q", raw), read(report.pack()))

    await asyncio.to_thread(run)
    assert len(await settle(bench, outbox)) == len(raws)


def _ends(settling: Settling) -> dict[str, Callable[[Delivery], object]]:
    def lost(job: Delivery) -> object:
        settling.settle(job, Lost(died("was killed by SIGSEGV", 0)))
        return job.loss and job.loss.pack()

    def overdue(job: Delivery) -> object:
        job.timed_out_s = 5.0
        return settling.settle(job, Lost(timed_out(5)))

    def revoked(job: Delivery) -> None:
        job.cancel("j")
        settling.ended(job, Report(Outcome(Fate.RETRY, NOW, b"{}")))

    def abandoned(job: Delivery) -> object:
        job.cancel("j")
        return settling.settle(job, Left(killed=True))

    return {
        "lost": lost,
        "overdue": overdue,
        "recovered": lost,
        "revoked": revoked,
        "bystander": lambda job: settling.settle(job, Bystander()),
        "abandoned": abandoned,
    }


@pytest.mark.fault("P9")
@pytest.mark.parametrize("end", MASTER_ENDS)
async def test_odd_fields_do_not_end_the_master_that_settles_a_job(bench: Bench, end: str) -> None:
    raws = list(payloads("send"))
    if end == "recovered":
        raws = [raw + MARK for raw in raws]
    if end == "lost":
        # At its third crash.
        raws += [raw[:-1] + b',"crash_count":2}' for raw in raws]
    await take(bench, raws)
    outbox, settling = outbox_and_settling()
    for number, raw in enumerate(raws, 1):
        _ends(settling)[end](Delivery(number, "q", raw))
    assert len(await settle(bench, outbox)) == len(raws)


async def test_an_end_that_fails_is_the_end_of_that_job_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Rules, "outcome", fail)
    monkeypatch.setattr(Rules, "ended", fail)
    raw = b'{"class":"send","args":[],"jid":"j1","track":60}'
    for end in ("lost", "revoked"):
        await take(bench, [raw])
        outbox, settling = outbox_and_settling()
        _ends(settling)[end](Delivery(1, "q", raw))
        [report] = await settle(bench, outbox)
        assert report.outcome.fate is Fate.DEAD
        assert await bench.redis.zrange(bench.keys.dead, 0, -1) == [raw]
        await bench.redis.delete(bench.keys.dead)


async def test_a_result_that_makes_the_effects_too_large_is_a_failure_of_the_job(bench: Bench) -> None:
    worker = Worker()
    worker.job(name="large", queue="q", retry=0)(lambda: "x" * 4_194_302)
    then = [{"queue": "next", "class": "N", "args": [{"pyworkers": "RESULT"}], "text": "y" * 4_194_200}]
    raw = json.dumps(
        {"class": "large", "jid": "j" * 24, "track": 60, "batch": "b" * 24, "batch_index": 0, "then": then}
    ).encode()
    runner = serial(worker)
    report = await asyncio.to_thread(runner.run, Packet(1, PacketKind.JOB, b"q", raw))
    assert report.outcome.fate is Fate.DEAD
    assert report.outcome.error_class == "BadResultError"
