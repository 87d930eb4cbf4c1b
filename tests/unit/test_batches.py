"""Batches without Redis: the rule of a member's end, calls, and what ``fake`` and ``inline`` do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pyworkers import AsyncClient, Client, Worker, chain, current_message, parallel
from pyworkers.errors import BadArgumentError, BatchError, Discard, DuplicateJobError, Kill, ResultTimeout
from pyworkers.plugins.batches import Batch
from pyworkers.protocol.call import RESULT
from pyworkers.protocol.effects import CountMember, Effect
from pyworkers.protocol.flow.batch import counted, expanded
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import MORE_THAN_BATCH, effects_of, member_at
from pyworkers.protocol.outcome import DONE, MemberAt, done_member
from pyworkers.testing import Fake, fake, inline

NOWHERE = "redis://127.0.0.1:1/0"


def ended(ending: Ending, jid: str = "j", result: bytes | None = None, **data: Any) -> tuple[Effect, ...]:
    return effects_of(Ended(ending, data, jid, "q", "C", 1.0, result=result))


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Ending.DONE, "done"),
        (Ending.RETRY, "failed"),
        (Ending.DEAD, "dead"),
        (Ending.DISCARDED, "done"),
        (Ending.DROPPED, "dropped"),
        (Ending.CANCELLED, "cancelled"),
        (Ending.EXPIRED, "expired"),
        (Ending.DELETED, "deleted"),
        (Ending.REPLACED, "replaced"),
    ],
)
def test_a_member_is_counted_by_its_ending(ending: Ending, state: str) -> None:
    assert ended(ending, batch="b") == (CountMember("b", "j", state),)


@pytest.mark.parametrize("ending", [Ending.PUT_OFF, Ending.GIVEN_BACK, Ending.MISFIT])
def test_a_job_that_runs_again_by_itself_is_not_counted(ending: Ending) -> None:
    assert ended(ending, batch="b") == ()


@pytest.mark.parametrize("batch", [None, 7, ["b"], {"id": "b"}])
def test_a_batch_of_another_type_has_no_effect(batch: Any) -> None:
    assert ended(Ending.DONE, batch=batch) == ()
    assert ended(Ending.DONE, jid="", batch="b") == ()


def test_a_result_is_kept_at_its_place() -> None:
    assert ended(Ending.DONE, batch="b", batch_index=3, result=b"[7]") == (
        CountMember("b", "j", "done", 3, b"[7]"),
    )
    assert ended(Ending.DONE, batch="b", batch_index=0) == (CountMember("b", "j", "done", 0, b"null"),)
    assert ended(Ending.DONE, batch="b", batch_index="3") == (CountMember("b", "j", "done"),)
    assert ended(Ending.RETRY, batch="b", batch_index=3) == (CountMember("b", "j", "failed", 3),)


ID, JID = "b" * 24, "0123456789abcdef01234567"


@pytest.mark.parametrize("args", [[], [7, ID], [JID, JID], ["ä" * 5]])
def test_a_member_that_is_done_is_counted_by_the_places_of_its_ids(args: list[Any]) -> None:
    data = {"args": args, "jid": JID, "batch": ID, "retry_count": 1}
    raw = json.dumps(data, ensure_ascii=False).encode()
    at = member_at(data, JID, raw)
    assert at is not None
    effect = CountMember(ID, JID, "done")
    assert counted(raw, MemberAt(*at)) == effect
    assert expanded(done_member(*at), raw).effects == (effect,)
    assert expanded(DONE, raw) is DONE
    assert (effect,) == effects_of(Ended(Ending.DONE, data, JID, "q", "C", 1.0))


@pytest.mark.parametrize(
    "more",
    [
        {"batch": None},
        {"batch": 7},
        {"batch": "b"},
        {"batch": "ä" * 24},
        {"jid": "j"},
        {"jid": "\ud800" * 24},
        {"jid": '"' * 24},
    ],
)
def test_members_with_other_ids_have_effects(more: dict[str, Any]) -> None:
    data = {"jid": JID, "batch": ID, **more}
    assert member_at(data, data["jid"], json.dumps(data).encode()) is None


@pytest.mark.parametrize(
    "more", [{"then": []}, {"batch_index": 0}, {"track": 60}, {"unique_key": "k"}, {"retry": 1}]
)
def test_more_follows_from_members_with_other_fields(more: dict[str, Any]) -> None:
    data = {"jid": JID, "batch": ID, **more}
    assert MORE_THAN_BATCH.isdisjoint(data) == ("retry" in more)


def test_a_job_without_a_batch_has_no_places() -> None:
    assert member_at({"jid": JID}, JID, b'{"jid":"%b"}' % JID.encode()) is None


class App:
    """An application that notes what runs."""

    def __init__(self) -> None:
        self.worker = worker = Worker(NOWHERE)
        self.ran: list[Any] = []

        @worker.job
        def member(what: Any = None) -> None:
            self.ran.append(what)
            if isinstance(what, Exception):
                raise what

        @worker.job
        def fails(kind: str) -> None:
            raise {"kill": Kill, "discard": Discard, "error": ValueError}[kind](kind)

        @worker.job
        def grows() -> None:
            with current_message().batch:
                member.enqueue("added")

        @worker.job
        def after(what: str, batch_id: str = "") -> None:
            self.ran.append((what, batch_id))

        @worker.job
        def plain(batch_id: str, *rest: int) -> None:
            self.ran.append((batch_id, *rest))

        self.member, self.fails, self.grows, self.after, self.plain = member, fails, grows, after, plain

    def batch(self) -> Batch:
        calls: dict[str, Any] = {
            f"on_{what}": self.after.call(what) for what in ("success", "complete", "death")
        }
        return self.worker.batch("all", **calls)


@pytest.fixture
def app() -> App:
    return App()


def test_the_callbacks_run_in_drain(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.member.enqueue(1)
            app.member.enqueue_bulk([(2,), (3,)])
            queue.assert_none()
        assert batch.status().pending == 3
        assert queue.drain() == 5
        assert app.ran == [1, 2, 3, ("complete", batch.id), ("success", batch.id)]
        status = batch.status()
        assert (status.total, status.pending, status.done) == (3, 0, 3)
        assert status.success_at is not None


def test_a_duplicate_is_no_member(app: App) -> None:
    unique = app.member.options(unique_for=60)
    with fake() as queue:
        jid = unique.enqueue(1)
        with app.batch() as batch:
            unique.enqueue_bulk([[1], [2], [2]])
            with app.worker.batch("inner") as inner:
                unique.enqueue(1)
        assert (batch.status().total, inner.status().total, inner.status().pending) == (2, 0, 0)
        queue.drain()
        assert app.ran == [1, 2, ("complete", batch.id), ("success", batch.id)]
        assert unique.enqueue(1) != jid
    app.ran.clear()
    with inline():
        with app.batch() as batch:
            unique.enqueue_bulk([[1], [1]])
        assert batch.status().total == 1
    assert app.ran == [1, ("complete", batch.id), ("success", batch.id)]


def test_a_refused_duplicate_leaves_no_batch(app: App) -> None:
    unique = app.member.options(unique_for=60, on_duplicate="raise")
    for testing in (fake, inline):
        with testing():
            with pytest.raises(DuplicateJobError), app.batch() as batch:
                unique.enqueue_bulk([[1], [1]])
            with pytest.raises(BatchError, match="is unknown"):
                batch.status()
    assert app.ran == []


def test_the_result_of_a_batch_is_asked_for_by_its_id(app: App) -> None:
    with fake() as queue:
        batch = parallel(app.member.call(1), app.member.call(2)).enqueue()
        with pytest.raises(ResultTimeout):
            app.worker.result(batch.id)
        queue.drain()
        assert app.worker.result(batch.id) == [None, None]
    with inline():
        assert app.worker.result(chain(app.member.call(3)).enqueue().id) is None


def test_a_batch_runs_inline(app: App) -> None:
    with inline(), app.batch() as batch:
        app.member.enqueue(1)
    assert app.ran == [1, ("complete", batch.id), ("success", batch.id)]


def test_a_dead_member_is_told_once(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.fails.enqueue("kill")
            app.fails.enqueue("kill")
            app.fails.enqueue("discard")
        _drain_all(queue)
        assert app.ran == [("death", batch.id), ("complete", batch.id)]
        status = batch.status()
        assert (status.total, status.dead, status.done, status.pending) == (3, 2, 1, 0)


def test_a_member_that_waits_for_a_retry_has_run(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.fails.enqueue("error")
        _drain_all(queue)
        assert app.ran == [("complete", batch.id)]
        assert (batch.status().pending, batch.status().failed) == (1, 1)


def _drain_all(queue: Fake) -> None:
    while queue.jobs:
        try:
            queue.drain()
        except Exception as error:
            assert str(error) in ("kill", "discard", "error")


def test_a_body_that_raises_enqueues_nothing(app: App) -> None:
    with fake() as queue:
        with pytest.raises(LookupError), app.batch() as batch:
            with app.batch():
                app.member.enqueue(1)
            app.member.enqueue(2)
            raise LookupError
        queue.assert_none()
        with pytest.raises(BatchError, match="unknown"):
            batch.status()
        app.member.enqueue(3)
        queue.drain()
    assert app.ran == [3]


def test_an_empty_batch_succeeds_at_once(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            pass
        queue.drain()
    assert app.ran == [("complete", batch.id), ("success", batch.id)]


def test_a_batch_counts_in_the_batch_around_it(app: App) -> None:
    with fake() as queue:
        with app.batch() as outer:
            with app.batch() as inner:
                app.member.enqueue(1)
            app.member.enqueue(2)
        assert (outer.status().total, inner.status().parent) == (2, outer.id)
        queue.drain()
    wanted = [("complete", inner.id), ("success", inner.id), ("complete", outer.id), ("success", outer.id)]
    assert app.ran == [2, 1, *wanted]


def test_a_member_adds_members(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.grows.enqueue()
        queue.drain()
        assert batch.status().total == 2
    assert app.ran == ["added", ("complete", batch.id), ("success", batch.id)]


def test_a_member_adds_a_batch_and_a_chain(app: App) -> None:
    @app.worker.job
    def start() -> None:
        with current_message().batch:
            with app.batch():
                app.member.enqueue(1)
            chain(app.member.call(2)).enqueue()

    with fake() as queue:
        with app.worker.batch() as batch:
            start.enqueue()
        assert queue.drain() == 5
        assert batch.status().done == 3
    assert [what for what in app.ran if what in (1, 2)] == [1, 2]


def test_a_batch_expires_as_in_redis(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.member.enqueue(1)
            app.member.enqueue_in(80 * 86_400, 2)
        queue.drain(scheduled=False)
        queue.travel(days=80)
        queue.drain()
        queue.travel(hours=23)
        assert batch.status().state == "succeeded"
        assert batch.result() is None
        queue.travel(hours=2)
        for ask in (batch.status, batch.result):
            with pytest.raises(BatchError, match="is unknown: expired"):
                ask()


def test_a_member_of_an_expired_batch_runs_without_it(app: App) -> None:
    with fake() as queue:
        with app.batch() as batch:
            app.member.enqueue_in(95 * 86_400, 1)
        queue.travel(days=89)
        assert batch.status().pending == 1
        queue.travel(days=6)
        with pytest.raises(BatchError, match="is unknown: expired"):
            batch.status()
        queue.drain()
    assert app.ran == [1]


def test_a_job_that_is_no_member_has_no_batch(app: App) -> None:
    with fake() as queue, pytest.raises(TypeError, match="NoneType"):
        app.grows.enqueue()
        queue.drain()


def test_the_jobs_of_other_clients_are_members_too(app: App) -> None:
    async def enlist() -> str:
        async with app.batch() as batch:
            await AsyncClient.of(app.worker).enqueue("default", "member", ["async"])
            Client.of(app.worker).enqueue("default", "member", ["client"])
        return batch.id

    with fake() as queue:
        batch = asyncio.run(enlist())
        assert {job.data["batch"] for job in queue.jobs} == {batch}
        queue.drain()
    assert app.ran == ["async", "client", ("complete", batch), ("success", batch)]


def test_a_batch_is_opened_once(app: App) -> None:
    with fake():
        with app.batch() as batch, pytest.raises(BatchError, match="cannot be opened"), batch:
            pass
        with pytest.raises(BatchError, match="cannot be opened"), batch:
            pass


def test_the_batch_id_is_filled_in_and_not_asked_for(app: App) -> None:
    assert repr(app.after.call("x")) == "after.call('x', BATCH_ID)"
    assert repr(app.after.call("x", batch_id="mine")) == "after.call('x', 'mine')"
    assert repr(app.plain.call(7, 8)) == "plain.call(BATCH_ID, 7, 8)"  # type: ignore[arg-type]
    assert json.loads(json.dumps(app.plain.call(7).filled("b"))) == ["b", 7]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "error"), [((), TypeError), (("a", "b"), TypeError), (({1},), BadArgumentError)]
)
def test_a_call_is_checked_like_an_enqueue_call(
    app: App, args: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        app.after.call(*args)


def test_a_callback_must_be_a_call_without_a_result(app: App) -> None:
    with pytest.raises(BadArgumentError, match="on_success is a call"):
        app.worker.batch(on_success=app.member)  # type: ignore[arg-type]
    with pytest.raises(BadArgumentError, match="no result"):
        app.worker.batch(on_success=app.member.call([RESULT]))
