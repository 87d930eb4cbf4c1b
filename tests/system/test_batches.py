"""Batches through the real server: callbacks, retries by hand, members that add members."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyworkers import RESULT, RESULTS, AsyncClient, Worker, chain, parallel
from pyworkers.api import DeadSet
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BatchError, JobFailedError, ResultTimeout
from pyworkers.plugins.batches import Batch
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

CODE = """
@worker.job(queue="q", concurrency=4, retry=1, retry_in=lambda count, error, message: 0.1)
def member(number, fails=""):
    note("member", number, current_message().attempt)
    if fails == "once" and current_message().attempt == 0:
        raise ValueError("once")
    if fails == "dies" and not Path(__file__).with_name("cured").exists():
        raise Kill("at once")
    if fails == "discarded":
        raise Discard("no")
    if fails == "more":
        with current_message().batch:
            for more in (number + 1, number + 2):
                member.enqueue(more)
    if fails == "waits":
        wait_for_file("go")

@worker.job(queue="q")
def after(what, batch_id):
    note(what, batch_id)

@worker.job(queue="q")
def give(value, fails=""):
    note("give", value)
    if fails == "dies" and not Path(__file__).with_name("cured").exists():
        raise Kill("at once")
    return {1} if fails == "set" else value

@worker.job(queue="q")
def show(*args):
    note("show", *args)
"""


class App:
    """The application as a program sees it that enqueues."""

    def __init__(self, url: str, namespace: str) -> None:
        self.config = RedisConfig(url, namespace)
        self.worker = worker = Worker(url, namespace=namespace)

        @worker.job(queue="q", retry=1)
        def member(number: int, fails: str = "") -> None: ...

        @worker.job(queue="q")
        def after(what: str, batch_id: str = "") -> None: ...

        @worker.job(queue="q")
        def give(value: object, fails: str = "") -> object: ...

        @worker.job(queue="q")
        def show(*args: object) -> None: ...

        self.member, self.after, self.give, self.show = member, after, give, show

    def batch(self) -> Batch:
        """A batch with all callbacks."""
        calls: dict[str, Any] = {
            f"on_{what}": self.after.call(what) for what in ("success", "complete", "death")
        }
        return self.worker.batch("test", **calls)

    def enlist(self, *fails: str) -> Batch:
        """A batch with a member for each of ``fails``."""
        with self.batch() as batch:
            for number, fault in enumerate(fails):
                self.member.enqueue(10 * number, fault)
        return batch


@pytest.fixture
def server(serve: Serve) -> Iterator[ServerProcess]:
    with serve(CODE) as running:
        yield running


@pytest.fixture
def app(one_redis_url: str, namespace: str) -> App:
    return App(one_redis_url, namespace)


def callbacks(server: ServerProcess) -> list[str]:
    return sorted(note[1] for note in server.ledger() if note[1] != "member")


def test_the_callbacks_of_a_batch_run_once_after_its_members(server: ServerProcess, app: App) -> None:
    batch = app.enlist("", "once", "")
    server.wait_for_notes(1, "success", batch.id)
    server.wait_for_notes(1, "complete", batch.id)
    status = batch.status()
    assert (status.total, status.pending, status.done, status.failed, status.dead) == (3, 0, 3, 0, 0)
    assert status.created_at < (status.complete_at or 0) <= (status.success_at or 0)
    server.stop()
    assert callbacks(server) == ["complete", "success"]


def test_a_dead_member_holds_the_success_back_until_it_is_retried_by_hand(
    server: ServerProcess, app: App, tmp_path: Path
) -> None:
    batch = app.enlist("", "dies")
    server.wait_for_notes(1, "death", batch.id)
    server.wait_for_notes(1, "complete", batch.id)
    assert (batch.status().pending, batch.status().done, batch.status().dead) == (0, 1, 1)
    (tmp_path / "cured").touch()
    assert DeadSet(app.config).retry_all() == 1
    server.wait_for_notes(1, "success", batch.id)
    assert (batch.status().done, batch.status().dead) == (2, 0)
    server.stop()
    assert callbacks(server) == ["complete", "death", "success"]


def test_a_member_that_chose_to_be_discarded_is_done_and_one_that_was_dropped_is_not(
    server: ServerProcess, app: App
) -> None:
    batch = app.enlist("", "discarded")
    server.wait_for_notes(1, "success", batch.id)
    assert (batch.status().total, batch.status().done) == (2, 2)
    with app.batch() as dropped:
        app.member.enqueue(1)
        jid = app.member.options(retry=False).enqueue(2, "once")
        late = app.member.options(expires_in=0.001).enqueue(3)
        # All are pushed at the end of the block: it has expired by then.
        time.sleep(0.01)
    server.wait_for_notes(1, "death", dropped.id)
    server.wait_for_notes(1, "complete", dropped.id)
    status = dropped.status()
    assert (status.done, status.dropped, status.expired, status.pending) == (1, 1, 1, 0)
    assert (status.state, status.reason_jid in (jid, late)) == ("dead", True)
    with pytest.raises(JobFailedError, match=status.reason_jid):
        dropped.result()
    steps = app.give.options(retry=0, dead=False).call(1, "dies"), app.show.call("never", RESULT)
    with pytest.raises(JobFailedError, match=r"the chain \w+ is dead: a member is dropped: "):
        chain(*steps).enqueue().result()
    both = (
        parallel(app.give.call(1), app.give.call(2, "dies")).then(app.show.call("never", RESULTS)).enqueue()
    )
    with pytest.raises(JobFailedError, match="a member is dead"):
        both.result()
    server.stop()
    assert "never" not in [note[2] for note in server.ledger() if note[1] == "show"]
    assert "success" not in [note[1] for note in server.ledger() if dropped.id in note]


def test_a_member_adds_members_while_it_runs(server: ServerProcess, app: App) -> None:
    batch = app.enlist("more")
    server.wait_for_notes(1, "success", batch.id)
    status = batch.status()
    assert (status.total, status.done, status.open) == (3, 3, False)
    members = [note[2] for note in server.ledger() if note[1] == "member"]
    assert sorted(members) == [0, 1, 2]


def test_a_batch_counts_in_the_batch_around_it(server: ServerProcess, app: App) -> None:
    with app.batch() as outer:
        app.member.enqueue(1)
        with app.batch() as inner:
            app.member.enqueue(2, "once")
    server.wait_for_notes(1, "success", outer.id)
    server.wait_for_notes(1, "success", inner.id)
    assert (outer.status().total, outer.status().done, inner.status().parent) == (2, 2, outer.id)
    [first, second] = [note[2] for note in server.ledger() if note[1] == "success"]
    assert {first, second} == {outer.id, inner.id}


def test_a_member_whose_worker_is_killed_in_the_middle_of_adding_is_counted(
    server: ServerProcess, app: App, tmp_path: Path
) -> None:
    batch = app.enlist("waits", "")
    server.wait_for_notes(1, "member", 0)
    [running] = [note[0] for note in server.ledger() if note[1:3] == ["member", 0]]
    wait_for(lambda: batch.status().done == 1, message="the other member is done")
    os.kill(running, signal.SIGKILL)
    (tmp_path / "go").touch()
    server.wait_for_notes(1, "success", batch.id)
    server.stop()
    assert callbacks(server) == ["complete", "success"]


def test_results_go_from_step_to_step_and_from_a_group_to_the_job_after_it(
    server: ServerProcess, app: App
) -> None:
    give, show = app.give, app.show
    text = 'ü"\\{"pyworkers":"RESULTS"}'
    batch = chain(
        give.call(text),
        parallel(give.call(RESULT), chain(give.call([RESULT]), give.call([RESULT])), parallel(give.call(3))),
        parallel(show.call("one", RESULTS), give.call(RESULT)),
        show.call("end", RESULT),
    ).enqueue()
    server.wait_for_notes(1, "show", "one", [text, [[text]], [3]])
    server.wait_for_notes(1, "show", "end", [None, [text, [[text]], [3]]])
    wait_for(lambda: batch.status().success_at is not None)
    keys = [key.decode() for key in server.redis.scan_iter(server.keys.batch("*:then"))]
    assert keys == []


def test_a_chain_goes_on_when_its_dead_step_is_retried_by_hand(
    server: ServerProcess, app: App, tmp_path: Path
) -> None:
    steps = app.give.call(1), app.give.call(2, "dies"), app.show.call("end", RESULT)
    batch = chain(*steps, on_death=app.after.call("death")).enqueue()
    server.wait_for_notes(1, "death", batch.id)
    assert (batch.status().done, batch.status().dead, batch.status().pending) == (1, 1, 1)
    (tmp_path / "cured").touch()
    assert DeadSet(app.config).retry_all() == 1
    server.wait_for_notes(1, "show", "end", 2)


def test_a_result_that_is_not_json_fails_the_step(server: ServerProcess, app: App) -> None:
    chain(app.give.call(1, "set"), app.show.call("end", RESULT)).enqueue()
    failed = server.wait_for_event("job.failed", job_class="give")
    assert failed["error_class"] == "BadResultError"


def test_the_result_of_a_canvas_is_waited_for(server: ServerProcess, app: App) -> None:
    give = app.give
    assert chain(give.call(1), give.call([RESULT])).enqueue().result() == [1]
    both = parallel(give.call(1), give.call("x")).enqueue()
    assert both.result() == both.result() == [1, "x"]
    assert asyncio.run(app.enlist("").aresult()) is None
    with pytest.raises(JobFailedError, match=r"the chain \w+ is dead: a member is dead"):
        chain(give.call(1), give.call(2, "dies")).enqueue().result(None)
    waiting = app.enlist("waits")
    with pytest.raises(ResultTimeout, match=f"the batch {waiting.id} has not ended in the time"):
        waiting.result(0)
    with pytest.raises(BatchError, match="unknown"):
        Batch(app.worker.client, "unknown").result()
    with pytest.raises(ResultTimeout):
        app.worker.result(waiting.id, 0)

    async def result_in_a_loop() -> Any:
        async with AsyncClient.of(app.worker) as client:
            with pytest.raises(ResultTimeout):
                await client.result(waiting.id, 0)
            server.let_go("go")
            return await client.result(waiting.id)

    assert asyncio.run(result_in_a_loop()) is None
    assert app.worker.result(waiting.id) is None
