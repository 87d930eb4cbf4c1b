"""When a job has expired, and what a started one loses."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from pyworkers.app import Worker
from pyworkers.errors import DeclarationError, Interrupted, Snooze
from pyworkers.ipc.control import Manifest
from pyworkers.protocol import cron
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, EXPIRED, REQUEUE, Fate, Outcome
from pyworkers.server.pool.settling import Rules
from pyworkers.testing import fake, inline
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Execution
from pyworkers.worker.steps.start import has_expired

NOW = 1_795_225_197.5


def message(mark: bytes = b"", **fields: Any) -> Message:
    raw = json.dumps({"class": "job", "args": [], "jid": "j1", "queue": "default", **fields}).encode()
    return Message.parse(raw + mark, "default", str)


@pytest.mark.parametrize(
    ("fields", "expired"),
    [
        ({"expiry": NOW - 1}, True),
        ({"expiry": NOW}, True),
        ({"expiry": int(NOW - 1)}, True),
        ({"expiry": int(NOW - 1) * 1000}, True),
        ({"expiry": NOW + 0.001}, False),
        # What is no positive number is ignored.
        ({"expiry": str(NOW - 1)}, False),
        ({"expiry": "soon"}, False),
        ({"expiry": 0}, False),
        ({"expiry": -1}, False),
        ({"expiry": None}, False),
        ({"expiry": True}, False),
        ({"expiry": 10**400}, False),
        ({"expiry": [NOW - 1]}, False),
        ({"expiry": {}}, False),
        # What has started once does not expire.
        ({"expiry": NOW - 1, "retry_count": 0}, False),
        ({"expiry": NOW - 1, "retry_count": -1}, False),
        ({"expiry": NOW - 1, "crash_count": 1}, False),
        ({"expiry": NOW - 1, "failed_at": "2001-01-01 00:00:00 UTC"}, False),
    ],
)
def test_a_job_has_expired(fields: dict[str, Any], expired: bool) -> None:
    assert has_expired(message(**fields), NOW) is expired


def test_a_job_of_a_dead_server_may_have_started() -> None:
    assert not has_expired(message(b"\t", expiry=NOW - 1), NOW)


def run(job: Any, found: Message, redis_now: float = NOW) -> tuple[Outcome, list[str]]:
    """The outcome, and what ran."""
    worker, ran = Worker(), list[str]()

    @worker.middleware
    def link(found: Message, call_next: Any) -> Any:
        ran.append("middleware")
        return call_next(found)

    @worker.on_exhausted
    def exhausted(*_: Any) -> None:
        ran.append("hook")

    worker.job(name="job")(lambda: job(ran))
    # The clock of this machine is wrong.
    runtime = Runtime(Bridge(), 25, lambda: 0.0, random.Random(1), redis_clock=lambda: redis_now)
    chain = StepChain(worker, worker.lookup("default", "job"), runtime)
    return chain.run(Execution(found)), ran


def test_an_expired_job_is_dropped_before_anything_of_the_application_runs() -> None:
    assert run(lambda ran: ran.append("job"), message(expiry=NOW)) == (EXPIRED, [])
    assert run(lambda ran: ran.append("job"), message(expiry=NOW), NOW - 1) == (DONE, ["middleware", "job"])


def raising(error: BaseException) -> Any:
    def job(_: list[str]) -> None:
        raise error

    return job


@pytest.mark.parametrize(
    ("error", "fate"),
    [(Snooze(5), Fate.SNOOZE), (Interrupted(), Fate.REQUEUE)],
    ids=["snooze", "stop"],
)
def test_a_job_that_has_started_and_comes_back_does_not_expire(error: BaseException, fate: Fate) -> None:
    outcome, _ = run(raising(error), message(expiry=NOW + 1, tenant=7))
    assert outcome.fate is fate
    data = json.loads(outcome.payload)
    assert "expiry" not in data and data["tenant"] == 7
    outcome, _ = run(raising(error), message())
    assert (outcome.fate, outcome.payload) == (fate, b"")


def test_a_job_that_ran_beside_a_killed_one_does_not_expire() -> None:
    manifest: Manifest = {"queues": {}, "groups": {}, "jobs": {}, "handlers": [], "cron": [], "hooks": {}}
    rules = Rules(manifest, 25, lambda: NOW, random.Random(1))
    outcome = rules.ended("q", message(expiry=NOW + 1).raw, REQUEUE)
    assert outcome.fate is Fate.REQUEUE and "expiry" not in json.loads(outcome.payload)
    assert rules.ended("q", message().raw, REQUEUE) is REQUEUE


def test_the_declaration_goes_with_each_job() -> None:
    worker = Worker("redis://127.0.0.1:1/0")

    @worker.cron("* * * * *")
    @worker.job(expires_in=timedelta(minutes=10))
    def job() -> None: ...

    with fake() as queue:
        job.enqueue()
        job.options(expires_in=5).enqueue_in(60)
        worker.enqueue("default", "job", expires_in=7)
    times = [found.data["expiry"] - (found.at or found.data["enqueued_at"]) for found in queue.jobs]
    assert [round(time, 3) for time in times] == [600, 5, 7]
    [entry] = worker.cron_entries
    assert entry.options == {"expires_in": 600}
    assert json.dumps(worker.manifest()["cron"])
    assert json.loads(cron.job_of(entry, 60, NOW, "j").payload)["expiry"] == NOW + 600
    with pytest.raises(DeclarationError, match="expires_in must be seconds above 0"):
        worker.job(name="x", expires_in=0)(lambda: None)
    with pytest.raises(DeclarationError, match="process has no option expires_in"):
        worker.process("q", expires_in=5)  # type: ignore[call-arg]


def test_in_tests_an_expired_job_does_not_run() -> None:
    worker, ran = Worker("redis://127.0.0.1:1/0"), list[int]()

    @worker.job(expires_in=60)
    def job(number: int) -> None:
        ran.append(number)

    with inline():
        job.enqueue(1)
    with fake() as queue:
        job.enqueue(2)
        queue.travel(seconds=10**9)
        assert queue.drain() == 1
        assert [found.outcome for found in queue.ran] == [EXPIRED]
    assert ran == [1]
