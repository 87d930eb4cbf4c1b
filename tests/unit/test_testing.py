"""pyworkers.testing: what users' tests rely on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pyworkers import AsyncClient, Cancelled, Client, JobState, JobStatus, Message, Worker, current_message
from pyworkers.enqueueing.interception import intercept
from pyworkers.errors import BadArgumentError, Kill, PyworkersError, Snooze, UnknownJobError
from pyworkers.middleware import AsyncCallNext, CallNext
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.testing import fake, inline

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def worker(ran: list[Any]) -> Worker:
    worker = Worker(NOWHERE)

    @worker.job(queue="mail")
    def send(user_id: int, subject: Any = "hi") -> None:
        ran.append((user_id, subject, current_message().jid))

    @worker.process("myqueue")
    def handle(message: Message) -> None:
        ran.append((message.job_class, message.args))

    @worker.job
    def fail(error: str) -> None:
        ran.append(error)
        raise ValueError(error)

    @worker.job
    def countdown(n: int) -> None:
        ran.append(n)
        if n:
            worker.enqueue("default", "countdown", [n - 1])

    return worker


def test_fake_collects_what_every_client_pushes(worker: Worker) -> None:
    async def enqueue() -> None:
        await AsyncClient(NOWHERE).enqueue("a", "Async", [2])

    with fake() as queue:
        Client(NOWHERE).enqueue("a", "Sync", [1], tags=["x"])
        asyncio.run(enqueue())
        thread = threading.Thread(target=worker.enqueue_in, args=(60, "a", "Thread"))
        thread.start()
        thread.join()
    assert [(job.queue, job.job_class, job.args) for job in queue.jobs] == [
        ("a", "Sync", [1]),
        ("a", "Async", [2]),
        ("a", "Thread", []),
    ]
    assert queue.jobs[0].data["tags"] == ["x"]
    assert queue.jobs[0].jid == queue.jobs[0].data["jid"]
    assert queue.jobs[0].at is None
    assert queue.jobs[2].at is not None


def test_after_fake_jobs_go_where_they_went_before(worker: Worker) -> None:
    with fake() as outer:
        with fake() as inner:
            worker.enqueue("myqueue", "Inner")
        worker.enqueue("myqueue", "Outer")
    assert [job.job_class for job in inner.jobs] == ["Inner"]
    assert [job.job_class for job in outer.jobs] == ["Outer"]
    assert intercept(None) is None


def test_drain_runs_all_jobs_and_those_that_they_enqueue(worker: Worker, ran: list[Any]) -> None:
    with fake() as queue:
        jid = worker.enqueue("mail", "send", [7, ("a", "b")])
        worker.enqueue_in(60, "myqueue", "Add", [1, 2])
        worker.enqueue("default", "countdown", [2])
        assert queue.drain() == 5
        assert queue.jobs == []
    assert ran == [(7, ["a", "b"], jid), ("Add", [1, 2]), 2, 1, 0]
    assert [job.outcome for job in queue.ran] == [Outcome(Fate.DONE)] * 5


def test_drain_can_leave_scheduled_jobs(worker: Worker, ran: list[Any]) -> None:
    with fake() as queue:
        worker.enqueue_in(60, "myqueue", "Later")
        worker.enqueue("myqueue", "Now")
        assert queue.drain(scheduled=False) == 1
    assert ran == [("Now", [])]
    assert [job.job_class for job in queue.jobs] == ["Later"]


def test_an_error_leaves_drain_and_the_job_can_be_looked_at(worker: Worker, ran: list[Any]) -> None:
    with fake() as queue:
        for text in ("one", "two"):
            worker.enqueue("default", "fail", [text])
        with pytest.raises(ValueError, match="one"):
            queue.drain()
        assert ran == ["one"]
        assert [job.args for job in queue.jobs] == [["two"]]
        failed = queue.ran[-1]
        assert failed.outcome is not None
        assert (failed.args, failed.outcome.fate, failed.outcome.error_class) == (
            ["one"],
            Fate.RETRY,
            "ValueError",
        )


def test_a_snoozed_job_waits_again(worker: Worker) -> None:
    @worker.job
    def snooze() -> None:
        raise Snooze(60)

    with fake() as queue:
        snooze.enqueue()
        assert queue.drain() == 1
    assert [(job.job_class, job.at is not None) for job in queue.jobs] == [("snooze", True)]
    assert queue.ran == []


def test_the_applications_links_and_hooks_run(worker: Worker, ran: list[Any]) -> None:
    @worker.middleware
    def note(message: Message, call_next: CallNext) -> Outcome:
        ran.append(f"around {message.job_class}")
        return call_next(message)

    @worker.job
    def kill() -> None:
        raise Kill("no")

    worker.on_exhausted(lambda message, error: ran.append(f"exhausted {error}"))
    with fake() as queue:
        kill.enqueue()
        with pytest.raises(Kill):
            queue.drain()
    assert ran == ["around kill", "exhausted no"]
    assert queue.ran[0].outcome is not None
    assert queue.ran[0].outcome.fate is Fate.DEAD


def test_async_jobs_and_links_run_through_the_same_chain(worker: Worker, ran: list[Any]) -> None:
    @worker.middleware
    async def note(message: Message, call_next: AsyncCallNext) -> Outcome:
        ran.append(f"around {message.job_class}")
        return await call_next(message)

    @worker.job
    async def fetch(url: str) -> None:
        await asyncio.sleep(0)
        ran.append((url, current_message().job_class))

    @worker.job
    async def fail_late() -> None:
        raise ValueError("late")

    async def program() -> None:
        # Also where a loop runs already.
        await AsyncClient.of(worker).enqueue("default", "fetch", ["b"])

    with inline():
        fetch.enqueue("a")
        asyncio.run(program())
        worker.enqueue("default", "countdown", [0])
        with pytest.raises(ValueError, match="late"):
            fail_late.enqueue()
    assert ran == [
        "around fetch", ("a", "fetch"), "around fetch", ("b", "fetch"), "around countdown", 0,
        "around fail_late",
    ]  # fmt: skip


def test_a_link_may_swallow_an_error(worker: Worker) -> None:
    @worker.middleware
    def forgive(message: Message, call_next: CallNext) -> Outcome | None:
        try:
            return call_next(message)
        except ValueError:
            return None

    with fake() as queue:
        worker.enqueue("default", "fail", ["x"])
        assert queue.drain() == 1


def test_a_class_without_a_handler_fails(worker: Worker) -> None:
    with fake() as queue:
        worker.enqueue("default", "Nobody")
        with pytest.raises(UnknownJobError, match="Nobody"):
            queue.drain()


def test_jobs_of_a_bare_client_need_a_worker(worker: Worker, ran: list[Any]) -> None:
    with fake() as queue:
        Client(NOWHERE).enqueue("myqueue", "Add", [1])
        with pytest.raises(PyworkersError, match=r"no worker for Add.*\nname the worker: drain\(worker\)"):
            queue.drain()
        Client(NOWHERE).enqueue("myqueue", "Add", [2])
        queue.drain(worker)
    assert ran == [("Add", [2])]


def test_each_job_is_run_by_the_worker_that_has_its_handler(worker: Worker, ran: list[Any]) -> None:
    web, other = Worker(NOWHERE), Worker(NOWHERE)

    @other.job
    def fail(error: str) -> None:
        ran.append(f"other {error}")

    def enqueue() -> None:
        Client(NOWHERE).enqueue("myqueue", "Add", [1])
        web.enqueue("myqueue", "Add", [2])
        fail.enqueue("x")

    with fake(worker) as queue:
        enqueue()
        assert queue.drain() == 3
    with inline(worker):
        enqueue()
    assert ran == [("Add", [1]), ("Add", [2]), "other x"] * 2


@pytest.mark.parametrize(
    ("job_class", "fate"), [("fail", Fate.RETRY), ("fail_once", Fate.DEAD), ("drop", Fate.DISCARD)]
)
def test_a_job_of_a_bare_client_has_the_policy_of_its_handler(
    worker: Worker, job_class: str, fate: Fate
) -> None:
    def fail(error: str) -> None:
        raise ValueError(error)

    worker.job(name="fail_once", retry=0)(fail)
    worker.job(name="drop", retry=0, dead=False)(fail)
    with fake() as queue:
        Client(NOWHERE).enqueue("mail", job_class, ["no"])
        with pytest.raises(ValueError, match="no"):
            queue.drain(worker)
        assert queue.ran[0].outcome is not None
        assert queue.ran[0].outcome.fate is fate


def test_jobs_of_a_client_of_a_worker_need_no_other_worker(worker: Worker, ran: list[Any]) -> None:
    with inline():
        Client.of(worker).enqueue("mail", "send", [1, "a"])
        asyncio.run(AsyncClient.of(worker).enqueue("mail", "send", [2, "b"]))
    assert [note[:2] for note in ran] == [(1, "a"), (2, "b")]


def test_assert_enqueued(worker: Worker) -> None:
    @worker.job
    def greet(name: str, loud: bool = False) -> None: ...

    with fake() as queue:
        greet.enqueue("Ann")
        greet.enqueue("Bob", loud=True)
        assert queue.assert_enqueued(greet).args == ["Ann"]
        assert queue.assert_enqueued("greet", "Bob", True) is queue.jobs[1]
        assert queue.assert_enqueued(greet, name="Bob", loud=True) is queue.jobs[1]
        with pytest.raises(AssertionError, match="send was not enqueued; waiting"):
            queue.assert_enqueued("send")
        with pytest.raises(TypeError, match="keyword arguments need the Job"):
            queue.assert_enqueued("greet", name="Bob")
        queue.clear()
        with pytest.raises(AssertionError, match="greet was not enqueued; nothing waits"):
            queue.assert_enqueued(greet)


def test_assert_none(worker: Worker) -> None:
    with fake() as queue:
        queue.assert_none()
        worker.enqueue("myqueue", "Add")
        queue.assert_none("Other")
        for job in (None, "Add"):
            with pytest.raises(AssertionError, match="1 too many; waiting: Add"):
                queue.assert_none(job)


def test_inline_runs_at_once(worker: Worker, ran: list[Any]) -> None:
    with inline():
        worker.enqueue_in(60, "myqueue", "Add", [1])
        assert ran == [("Add", [1])]
        worker.enqueue("default", "countdown", [2])
        assert ran[1:] == [2, 1, 0]
        with pytest.raises(ValueError, match="bad"):
            worker.enqueue("default", "fail", ["bad"])
    with inline(worker) as jobs:
        Client(NOWHERE).enqueue("myqueue", "Add", [2])
        assert [job.args for job in jobs.ran] == [[2]]
    assert ran[-1] == ("Add", [2])
    assert intercept(None) is None


def test_jobs_are_found_and_cancelled(worker: Worker, ran: list[Any]) -> None:
    @worker.job(queue="mail", unique_for=60, track=60)
    def bill(user_id: int) -> None:
        ran.append((worker.find(jids[0]).state, worker.cancel(jids[0])))

    with fake() as queue:
        jids = [bill.enqueue(1), bill.enqueue_in(60, 2), bill.enqueue(3)]
        assert [worker.find(jid).state for jid in (*jids, "other")] == [
            JobState.WAITING, JobState.SCHEDULED, JobState.WAITING, JobState.UNKNOWN,
        ]  # fmt: skip
        assert worker.find(jids[1]).queue == "mail"

        assert worker.cancel(jids[1]) is Cancelled.REMOVED
        assert asyncio.run(AsyncClient(NOWHERE).cancel(jids[2])) is Cancelled.REMOVED
        assert asyncio.run(AsyncClient(NOWHERE).find(jids[2])) == JobStatus(JobState.UNKNOWN)
        assert worker.cancel(jids[2]) is Cancelled.UNKNOWN
        with pytest.raises(BadArgumentError, match="a jid is a text"):
            worker.cancel("")
        assert worker.status(jids[1]).state is JobState.CANCELLED
        # The lock of the cancelled job is free.
        bill.enqueue(2)

        assert queue.drain() == 2
        assert ran[0] == (JobState.RUNNING, Cancelled.RUNNING)
        assert worker.find(jids[0]).state is JobState.UNKNOWN


def test_a_job_that_could_not_begin_does_not_run(worker: Worker) -> None:
    client = Client(NOWHERE)
    with fake() as queue:
        jid = client.enqueue("mail", "send", [1])
        with pytest.raises(PyworkersError, match="no worker for send"):
            queue.drain()
        assert (client.find(jid).state, client.cancel(jid)) == (JobState.UNKNOWN, Cancelled.UNKNOWN)


def test_a_job_that_runs_inline_is_found_and_not_cancelled(worker: Worker, ran: list[Any]) -> None:
    @worker.job
    def look() -> None:
        jid = current_message().jid
        ran.append((worker.find(jid).state, worker.cancel(jid)))

    with inline():
        jid = look.enqueue()
        assert ran == [(JobState.RUNNING, Cancelled.RUNNING)]
        assert worker.find(jid).state is JobState.UNKNOWN
        assert worker.cancel(jid) is Cancelled.UNKNOWN
