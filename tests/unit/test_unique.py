"""Unique jobs and limits of queues without Redis: keys, options, releases, and the test support."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from pyworkers import Client, DuplicateJobError, Kill, QueueFullError, Retry, Worker
from pyworkers.errors import BadArgumentError, DeclarationError
from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.draft import PushedJob, draft
from pyworkers.protocol.effects import Unlock
from pyworkers.protocol.flow import unique
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of
from pyworkers.testing import Fake, inline

NOW = 1_795_225_197.5


def pushed(args: Any = (1, 2), at: float | None = None, **options: Any) -> PushedJob:
    return draft("mail", "Add", None, options, at).job(args, NOW)


def key(args: Any = (1, 2), **options: Any) -> str:
    found: str = json.loads(pushed(args, unique_for=60, **options).payload)["unique_key"]
    return found


# --- the key ------------------------------------------------------------------------------------------------


def test_the_key_shows_class_and_queue_and_hides_the_arguments() -> None:
    assert key() == "Add|mail|49a64717d5d4cb19952e6eac2946415c"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1, 2], (1, 2), True),
        ([{"a": 1, "b": [2]}], [{"b": (2,), "a": 1}], True),
        ([1], [1.0], True),
        ([10**21], [1e21], False),
        ([1], [True], False),
        ([1], ["1"], False),
        ([[1], 2], [1, [2]], False),
        ([], [None], False),
    ],
)
def test_equal_arguments_have_one_key(one: Any, other: Any, same: bool) -> None:
    assert (key(one) == key(other)) is same


def test_class_and_queue_count() -> None:
    keys = {
        unique.key_of(job_class, queue, [1], None, "args")
        for job_class, queue in (("A", "q"), ("A", "r"), ("B", "q"))
    }
    assert len(keys) == 3


def test_a_key_is_short_for_any_arguments() -> None:
    long = unique.key_of("C" * 1_000_000, "q" * 128, ["x" * 1_000_000], None, "args")
    assert long.startswith("C" * 47 + "…") and "|" + "q" * 47 + "…" in long
    assert len(long) == 64 + 1 + 64 + 1 + 32
    others = [("C" * 999_999, "q" * 128), ("C" * 1_000_000, "q" * 127), ("a|b", "c"), ("a", "b|c")]
    keys = {unique.key_of(job_class, queue, [], None, "args") for job_class, queue in others}
    assert len(keys) == 4 and all(len(unique.parts_of(key)[2]) == 32 for key in keys)


def test_what_counts_as_the_same_can_be_chosen() -> None:
    def by_user(user: int, *_: Any) -> int:
        return user

    assert key([7, "a"], unique_by=by_user) == key([7, "b"], unique_by=by_user) == key([0], unique_by=7)
    assert key([7, "a"], unique_by=by_user) != key([8, "a"], unique_by=by_user)
    # None is no choice: all arguments count.
    assert key([7, "a"], unique_by=lambda *_: None) == key([7, "a"])


@pytest.mark.parametrize(
    ("args", "by", "message"),
    [
        ([{1}], None, r"args\[0\] is of type set"),
        ([float("nan")], None, r"args\[0\] is nan"),
        ([{1: 2}], None, r"args\[0\] has the key 1"),
        ([1], lambda _: {1}, "unique_by is of type set"),
        ([1], lambda _: [object()], r"unique_by\[0\] is of type object"),
        (["\ud800"], None, r"args\[0\] holds a lone surrogate"),
    ],
)
def test_a_value_without_a_key_is_refused_with_its_path(args: Any, by: Any, message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        pushed(args, unique_for=60, unique_by=by)


# --- options ------------------------------------------------------------------------------------------------


def test_the_envelope_of_a_unique_job_is_that_of_sidekiq_enterprise_with_the_key() -> None:
    job = pushed(unique_for=timedelta(hours=1), unique_until="start", jid="j1", on_duplicate="raise")
    assert job.payload.decode() == (
        '{"queue":"mail","class":"Add","args":[1,2],"unique_for":3600,"unique_until":"start","jid":"j1",'
        '"unique_key":"Add|mail|49a64717d5d4cb19952e6eac2946415c",'
        '"created_at":1795225197.5,"enqueued_at":1795225197.5}'
    )
    assert job.conditions == Conditions(
        UniqueLock("unique:Add|mail|49a64717d5d4cb19952e6eac2946415c", 3600, "raise")
    )


def test_the_lock_of_a_job_for_later_lives_as_much_longer() -> None:
    job = pushed(at=NOW + 100, unique_for=60)
    assert job.at == NOW + 100
    assert job.conditions is not None
    assert job.conditions.lock is not None
    assert job.conditions.lock.life_s == 160


def test_a_key_says_that_its_lock_ends_by_time_alone() -> None:
    job = pushed(at=NOW + 60, unique_for=60, unique_until="expiry", on_duplicate="replace")
    found = json.loads(job.payload)["unique_key"]
    assert found == "Add|mail|49a64717d5d4cb19952e6eac2946415c|expiry"
    assert unique.parts_of(found) == ("Add", "mail", "49a64717d5d4cb19952e6eac2946415c")


def test_a_limit_leaves_the_envelope_as_it_is() -> None:
    job = pushed(max_waiting=5, wait=2, jid="j1")
    assert job.payload == pushed(jid="j1").payload
    assert (job.conditions, pushed().conditions) == (Conditions(None, 5, 2), None)


def test_options_are_switched_off_by_none() -> None:
    job = pushed(unique_for=None, unique_until="start", on_duplicate="raise", max_waiting=None, jid="j1")
    assert (job.payload, job.conditions) == (pushed(jid="j1").payload, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique_for": 0}, "unique_for must be seconds above 0"),
        ({"unique_for": -1}, "unique_for must be"),
        ({"unique_for": float("nan")}, "unique_for must be"),
        ({"unique_for": float("inf")}, "unique_for must be"),
        ({"unique_for": True}, "unique_for must be"),
        ({"unique_for": "60"}, "unique_for must be"),
        ({"unique_for": timedelta(seconds=-1)}, "unique_for must be"),
        ({"unique_for": 60, "unique_until": "end"}, "unique_until must be success, start or expiry"),
        ({"unique_for": 60, "on_duplicate": "drop"}, "on_duplicate must be skip, raise or replace"),
        ({"unique_until": "start"}, "unique_until has no effect without unique_for"),
        ({"unique_by": len}, "unique_by has no effect without unique_for"),
        ({"on_duplicate": "skip"}, "on_duplicate has no effect without unique_for"),
        ({"unique_for": 60, "unique_by": {1}}, "unique_by is of type set"),
        ({"wait": 5}, "wait has no effect without max_waiting"),
        ({"max_waiting": 0}, "max_waiting must be a number of jobs from 1"),
        ({"max_waiting": True}, "max_waiting must be"),
        ({"max_waiting": 1.5}, "max_waiting must be"),
        ({"max_waiting": 1, "wait": -1}, "wait must be seconds from 0"),
        ({"max_waiting": 1, "wait": float("nan")}, "wait must be"),
        ({"unique_key": "x"}, "unique_key is not an option: it is written by pyworkers itself"),
        ({"extra": {"unique_key": "x"}}, r"extra\['unique_key'\] is not a field of your own"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        pushed(**options)


# --- the release --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [None, "success", "start", "expiry", 7])
@pytest.mark.parametrize("ending", list(Ending))
def test_the_lock_is_released_at_the_end(until: Any, ending: Ending) -> None:
    data = {"unique_key": "Add|mail|12", "unique_for": 60} | (
        {} if until is None else {"unique_until": until}
    )
    released = (ending.final and until != "expiry") or (until == "start" and ending is Ending.RETRY)
    effects = effects_of(Ended(ending, data, "j1", "mail", "Add", NOW))
    assert effects == ((Unlock("unique:Add|mail|12", "j1"),) if released else ())
    assert unique.effects_at_start(data, "j1") == (
        (Unlock("unique:Add|mail|12", "j1"),) if until == "start" else ()
    )


@pytest.mark.parametrize("bad", [None, 7, "", "x" * 257, "\ud800", ["a"], "x" * 1_000_000])
def test_a_key_that_only_another_language_writes_is_left_to_its_ttl(bad: Any) -> None:
    assert effects_of(Ended(Ending.DONE, {"unique_key": bad}, "j1", "mail", "Add", NOW)) == ()


def test_sidekiq_enterprises_jobs_have_no_lock_of_ours() -> None:
    data = {"unique_for": 60, "unique_token": "abc"}
    assert effects_of(Ended(Ending.DONE, data, "j1", "mail", "Add", NOW)) == ()


# --- a job, and the test support ----------------------------------------------------------------------------

worker = Worker("redis://localhost")


@worker.job(queue="u", unique_for=60)
def once(n: int, note: str = "") -> None:
    if note == "again":
        assert once.enqueue(n, note) == "held"


@worker.job(queue="u", unique_for=60, unique_until="start")
def until_start(n: int, last: bool = False) -> None:
    started.append(until_start.options(unique_by=n).enqueue(n, True) if not last else "")


@worker.job(queue="u", unique_for=60, unique_by=lambda n, *_: n, unique_until="expiry")
def by_first(n: int, note: str = "") -> None: ...


@worker.job(queue="u", unique_for=60, on_duplicate="replace")
def debounced(n: int) -> None: ...


@worker.job(queue="u", unique_for=60, retry=1)
def fails(error: str) -> None:
    raise {"kill": Kill("no"), "retry": Retry("again")}[error]


@worker.job(queue="full", max_waiting=2)
def crowded(n: int) -> None: ...


started: list[str] = []


def test_a_unique_job_is_enqueued_once_until_it_is_done(queue: Fake) -> None:
    first = once.enqueue(7)
    assert [once.enqueue(7), once.enqueue(n=7), once.enqueue_in(60, 7)] == [first] * 3
    assert once.enqueue(8) != first
    assert queue.drain() == 2
    assert once.enqueue(7) != first


def test_a_bulk_returns_the_jid_of_the_job_that_is_there(queue: Fake) -> None:
    there = once.enqueue(1)
    one, two, three, four = once.enqueue_bulk([(1,), (2,), (2,), (3,)])
    assert (one, two) == (there, three)
    assert [job.jid for job in queue.jobs] == [there, two, four]
    assert Client.of(worker).enqueue("u", "once", [1]) == there
    assert Client("redis://localhost").enqueue("u", "once", [1]) != there
    assert Client("redis://localhost").enqueue("u", "once", [1], unique_for=60) == there


def test_a_duplicate_may_be_an_error(queue: Fake) -> None:
    there = once.enqueue(1)
    with pytest.raises(DuplicateJobError) as caught:
        once.options(on_duplicate="raise").enqueue_bulk([(2,), (1,)])
    assert (caught.value.jid, len(queue.jobs)) == (there, 1)
    assert once.options(unique_for=None).enqueue(1) != there


def test_a_lock_expires(queue: Fake) -> None:
    now, later = once.enqueue(1), once.enqueue_in(100, 2)
    queue.travel(seconds=61)
    assert once.enqueue(1) != now
    assert once.enqueue(2) == later
    queue.travel(seconds=100)
    assert once.enqueue(2) != later


def test_until_start_the_job_may_enqueue_itself(queue: Fake) -> None:
    started.clear()
    first = until_start.options(unique_by=1).enqueue(1)
    assert until_start.options(unique_by=1).enqueue(1) == first
    assert queue.drain() == 2
    assert [job.jid for job in queue.ran] == [first, started[0]]
    assert first != started[0]


def test_until_expiry_the_end_releases_nothing(queue: Fake) -> None:
    first = by_first.enqueue(1, "a")
    assert queue.drain() == 1
    assert by_first.enqueue(1, "b") == first
    queue.travel(seconds=61)
    assert by_first.enqueue(1, "b") != first


def test_a_scheduled_job_is_replaced_and_a_waiting_one_stays(queue: Fake) -> None:
    first = debounced.enqueue_in(60, 1)
    second = debounced.enqueue_in(60, 1)
    assert first != second
    third = debounced.enqueue(1)
    assert [job.jid for job in queue.jobs] == [third]
    assert debounced.enqueue_in(60, 1) == debounced.enqueue(1) == third


def test_a_member_that_is_replaced_is_counted_out(queue: Fake) -> None:
    with worker.batch() as batch:
        debounced.enqueue_in(60, 1)
        debounced.enqueue_in(60, 2)
    debounced.enqueue_in(60, 1)
    status = batch.status()
    assert (status.state, status.total, status.pending, status.gone) == ("running", 1, 1, 0)


def test_a_retry_keeps_the_lock_and_death_releases_it(queue: Fake) -> None:
    retried, killed = fails.enqueue("retry"), fails.enqueue("kill")
    with pytest.raises(Retry):
        queue.drain()
    assert fails.enqueue("retry") == retried
    with pytest.raises(Kill):
        queue.drain()
    assert fails.enqueue("kill") != killed


def test_a_full_queue_refuses_and_takes_no_lock(queue: Fake) -> None:
    crowded.enqueue_bulk([(1,), (2,)])
    with pytest.raises(QueueFullError) as caught:
        crowded.options(unique_for=60).enqueue(3)
    assert (caught.value.queue, caught.value.limit) == ("full", 2)
    assert crowded.try_enqueue(3) is None
    assert Client.of(worker).try_enqueue("full", "crowded", [3]) is None
    assert worker.try_enqueue("other", "crowded", [3]) is not None
    crowded.enqueue_in(60, 3)
    assert len(queue.jobs) == 4
    queue.drain()
    assert crowded.options(unique_for=60).enqueue(3)


def test_inline_holds_the_lock_while_the_job_runs() -> None:
    with inline():
        once.options(jid="held").enqueue(1, "again")
        first = by_first.enqueue(1)
        assert by_first.enqueue(1) == first
        assert once.enqueue(1) != once.enqueue(1)
        crowded.enqueue_bulk([(n,) for n in range(5)])


@pytest.mark.parametrize("options", [{"unique_for": 0}, {"unique_until": "start"}, {"max_waiting": -1}])
def test_a_declaration_that_is_refused(options: Any) -> None:
    with pytest.raises(DeclarationError, match="the job 'broken'"):

        @Worker("redis://localhost").job(**options)
        def broken() -> None: ...


def test_the_server_knows_the_declaration_and_cron_what_counts_as_the_same() -> None:
    app = Worker("redis://localhost")

    @app.cron("@daily", args=[7, "x"])
    @app.job(queue="u", unique_for=timedelta(minutes=1), unique_by=lambda n, *_: n, max_waiting=5)
    def tick(n: int, note: str = "") -> None: ...

    manifest = json.loads(json.dumps(app.manifest()))
    options = {"unique_for": 60, "max_waiting": 5}
    assert manifest["jobs"]["tick"]["envelope"] == {"retry": True, **options}
    assert manifest["cron"][0]["options"] == {**options, "unique_by": 7}
