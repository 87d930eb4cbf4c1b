"""Actions on all jobs that a filter selects: counted, confirmed by one person, stopped, done."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from pyworkers.api.browse import work
from pyworkers.api.browse.actions import Action, Order, act_on
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.pages import read_page
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.api.browse.search import Sought
from pyworkers.api.browse.tasks import Task, TaskState, confirm_task, create_task, read_task, stop_task
from pyworkers.api.browse.undo import Deletion, PutBack
from pyworkers.api.browse.work import work_on
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from pyworkers.store.calls import Operation, Request, drive, one
from tests.helpers.records import raw_job

NOW = 1_700_000_000.0
QUEUE = Place.of_queue("q")


@pytest.fixture
def admin(redis_url: str, namespace: str) -> Admin:
    return Admin(RedisConfig(redis_url, namespace))


def failed(number: int, error: str, **fields: Any) -> bytes:
    return raw_job(f"{error}{number}", error_class=error, failed_at=NOW - number, retry_count=0, **fields)


def order(admin: Admin, place: Place, action: Action, at: float | None = None, **conditions: Any) -> Task:
    return create_task(admin, Order(place, action, at), Sought(place, Filter.of(conditions), NOW), "Ann")


def seen(admin: Admin, task: Task) -> Task:
    found = admin.run(read_task(admin.keys, task.id))
    assert found is not None
    return found


def counted(admin: Admin, task: Task) -> Task:
    assert work_on(admin, task) is TaskState.COUNTED
    return seen(admin, task)


def done(admin: Admin, task: Task) -> Task:
    confirmed = confirm_task(admin, task)
    assert confirmed is not None
    assert work_on(admin, confirmed) is TaskState.DONE
    return seen(admin, task)


def test_all_time_outs_of_the_last_hour_are_retried(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    for error in ("Timeout", "Refused"):
        db.zadd(keys.retry, {failed(number, error): NOW + number for number in range(0, 7200, 3)})
    task = counted(admin, order(admin, RETRIES, Action.RUN, error="timeout", younger_s=3600.0))
    assert task.progress.selected == 1200
    assert db.zcard(keys.retry) == 4800
    about = done(admin, task).as_dict()
    assert (about["state"], about["selected"], about["done"], about["looked_at"]) == (
        "done",
        1200,
        1200,
        4800,
    )
    assert (db.zcard(keys.retry), db.llen(keys.queue("q"))) == (3600, 1200)


@pytest.mark.parametrize("place", [SCHEDULED, RETRIES, DEAD, QUEUE])
def test_every_second_job_is_deleted(admin: Admin, keys: Keys, db: redis.Redis, place: Place) -> None:
    raws = [raw_job(str(number), tags=["odd"] if number % 2 else []) for number in range(3001)]
    if place.queue:
        db.lpush(place.key(keys), *raws)
    else:
        db.zadd(place.key(keys), {raw: NOW - place_ for place_, raw in enumerate(raws)})
    task = counted(admin, order(admin, place, Action.DELETE, tag="odd"))
    assert task.progress.selected == 1500
    assert done(admin, task).progress.done == 1500
    page = admin.run(read_page(keys, place, 0, 5000))
    assert len(page.rows) == 1501
    assert not any(row.job.tags for row in page.rows)


def test_jobs_get_another_time(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job(str(number)): NOW + number for number in range(1500)})
    task = order(admin, SCHEDULED, Action.RESCHEDULE, NOW + 9000)
    # Without a filter nothing has to be counted.
    assert (task.state, task.progress.selected) == (TaskState.COUNTED, 1500)
    assert done(admin, task).progress.done == 1500
    assert db.zcount(keys.schedule, NOW + 9000, NOW + 9000) == 1500


def test_large_jobs_are_moved_whole(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    large = raw_job("1", error_class="Big", args=["x" * 100_000])
    db.zadd(keys.retry, {large: NOW})
    task = counted(admin, order(admin, RETRIES, Action.KILL, error="big"))
    assert done(admin, task).progress.done == 1
    assert db.zrange(keys.dead, 0, -1) == [large]


def test_jobs_that_cannot_be_moved_are_counted(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {b"\xff": NOW - 2, raw_job("1", queue="a b"): NOW - 1, raw_job("2"): NOW - 3})
    task = done(admin, order(admin, DEAD, Action.RUN))
    assert (task.progress.done, task.progress.refused) == (1, 2)
    assert task.progress.reason == "not UTF-8: invalid start byte at byte 0"


def test_of_two_people_who_confirm_one_acts(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1"): NOW - 1})
    task = order(admin, DEAD, Action.DELETE)
    assert confirm_task(admin, task) is not None
    assert confirm_task(admin, task) is None
    assert seen(admin, task).state is TaskState.RUNNING


@pytest.mark.parametrize("place", [DEAD, QUEUE])
def test_all_jobs_are_deleted_in_one_step(admin: Admin, keys: Keys, db: redis.Redis, place: Place) -> None:
    if place.queue:
        db.lpush(keys.queue("q"), b"1", b"2")
    else:
        db.zadd(keys.dead, {b"1": 1, b"2": 2})
    task = done(admin, order(admin, place, Action.DELETE))
    assert task.clears
    assert task.progress.done == 2
    assert not db.exists(place.key(keys))


def test_a_task_is_stopped(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(str(number)): NOW - number for number in range(1000)})
    task = confirm_task(admin, order(admin, DEAD, Action.RUN))
    assert task is not None
    assert stop_task(admin, seen(admin, task))
    assert work_on(admin, task) is TaskState.STOPPED
    assert db.zcard(keys.dead) == 1000
    assert not stop_task(admin, seen(admin, task))


def test_a_task_whose_dashboard_has_ended(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1"): NOW - 1})
    task = order(admin, DEAD, Action.DELETE, jid="1")
    assert seen(admin, task).working
    db.delete(keys.task_alive(task.id))
    lost = seen(admin, task)
    assert lost.lost
    assert (lost.as_dict()["state"], lost.as_dict()["reason"]) == ("stopped", "its dashboard ended")


def test_what_redis_refuses_ends_a_task(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {raw_job("1"): NOW})
    db.set(keys.queue("q"), "text")
    task = confirm_task(admin, order(admin, RETRIES, Action.RUN))
    assert task is not None
    assert work_on(admin, task) is TaskState.FAILED
    assert "another type" in seen(admin, task).progress.reason


def test_a_task_waits_for_redis(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1"): NOW - 1})
    away = iter([True, True])
    pauses: list[float] = []

    class Flaky(Admin):
        def run(self, operation: Operation[Any]) -> Any:
            if next(away, False):
                raise RedisUnavailableError("away")
            return super().run(operation)

    task = confirm_task(admin, order(admin, DEAD, Action.DELETE))
    assert task is not None
    assert work_on(Flaky(admin.config), task, pauses.append) is TaskState.DONE
    assert len(pauses) == 2
    assert not db.zcard(keys.dead)


class Lossy(Admin):
    """The first call of each script is done, and its reply is lost; a job comes to ``dead`` meanwhile."""

    def __init__(self, config: RedisConfig) -> None:
        super().__init__(config)
        self._lost: set[Any] = set()

    def run(self, operation: Operation[Any]) -> Any:
        return drive(iter(operation), self._perform)

    def _perform(self, request: Request[Any]) -> Any:
        found = super().run(request)
        kind = request.commands[0].parts[:2]
        if kind in self._lost:
            return found
        self._lost.add(kind)
        super().run(one("ZADD", self.keys.dead, NOW, raw_job("later"), read=int))
        raise RedisUnavailableError("away")


def test_a_place_is_cleared_once_although_replies_are_lost(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    raws = [raw_job(str(n), unique_key=f"l{n}", unique_for=600) for n in range(2500)]
    db.zadd(keys.dead, dict.fromkeys(raws, NOW - 1))
    locks = [keys.unique(f"l{n}") for n in (0, 2499)]
    db.mset({locks[0]: "0", locks[1]: "2499"})
    task = confirm_task(admin, order(admin, DEAD, Action.DELETE))
    assert task is not None
    assert work_on(Lossy(admin.config), task, lambda _seconds: None) is TaskState.DONE
    progress = seen(admin, task).progress
    assert (progress.done, progress.selected, progress.looked_at, progress.left) == (2500, 2500, 2500, 0)
    # What is enqueued meanwhile stays; of the page whose reply was lost, no job is kept twice.
    assert db.zrange(keys.dead, 0, -1) == [raw_job("later")]
    assert not db.exists(*locks)
    deletion = Deletion(task.id, admin)
    assert (deletion.numbers or ())[1:] == (1000, 2500)
    undo = PutBack(task.id)
    back = confirm_task(admin, create_task(admin, undo, Sought(undo.place, Filter(), NOW), "Bob"))
    assert back is not None and seen(admin, back).order == undo
    assert work_on(Lossy(admin.config), back, lambda _seconds: None) is TaskState.DONE
    progress = seen(admin, back).progress
    assert (progress.done, progress.selected, progress.looked_at, progress.refused) == (1000, 1000, 1000, 0)
    assert db.zcard(keys.dead) == 1001 and deletion.numbers is None


def test_the_progress_of_a_place_that_is_cleared(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(raw_job(str(n)) for n in range(2500)))
    reported: list[tuple[int, int]] = []

    class Watched(Admin):
        def run(self, operation: Operation[Any]) -> Any:
            found = super().run(operation)
            progress = seen(admin, task).progress
            reported.append((progress.done, progress.looked_at))
            return found

    task = order(admin, QUEUE, Action.DELETE)
    confirmed = confirm_task(admin, task)
    assert confirmed is not None
    working = seen(admin, task)
    assert working.working and not stop_task(admin, working)
    assert work_on(Watched(admin.config), confirmed) is TaskState.DONE
    assert list(dict.fromkeys(reported)) == [(0, 0), *((2500, done) for done in (0, 1000, 2000, 2500))]


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"order": "x"},
        {"order": "[1]", "state": "done"},
        {"state": "done"},
        {"order": '[["elsewhere", "run", null], {}, 1, [], ""]', "state": "done"},
        {"order": '[[7, "delete", null], {}, 1, [], ""]', "state": "done"},
        {"order": '[["dead", "run", null], 7, 1, [], ""]', "state": "done"},
        {"order": '[["dead", "run", null], {}, NaN, [], ""]', "state": "done"},
        {"order": f'[["dead", "run", null], {{}}, 1{"0" * 400}, [], ""]', "state": "done"},
        {"order": '[["retries", "reschedule", "soon"], {}, 1, [], ""]', "state": "done"},
        {"order": '[["dead", "run", null], {}, 1, [], ""]', "state": "done", "done": "9" * 5000},
    ],
)
def test_an_invalid_task_is_none(admin: Admin, keys: Keys, db: redis.Redis, stored: dict[Any, Any]) -> None:
    if stored:
        db.hset(keys.task("t"), mapping=stored)
    assert admin.run(read_task(keys, "t")) is None
    db.delete(keys.task("t"))
    db.set(keys.task("t"), "text")
    assert admin.run(read_task(keys, "t")) is None


def test_selected_jobs(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(raw_job(str(number)) for number in range(9)))
    ats = [row.at for row in admin.run(read_page(keys, QUEUE)).rows]
    db.rpop(keys.queue("q"))
    assert act_on(admin, Order(QUEUE, Action.FIRST), [ats[0], ats[5], ats[7]]).done == 2
    assert act_on(admin, Order(QUEUE, Action.DELETE), [ats[1], ats[2]]).done == 2
    assert [row.job.jid for row in admin.run(read_page(keys, QUEUE)).rows] == ["5", "7", "3", "4", "6", "8"]


def test_an_order_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="cannot be moved by this action"):
        Order(DEAD, Action.KILL)
    with pytest.raises(ValueError, match="only reschedule takes a time"):
        Order(SCHEDULED, Action.RESCHEDULE)


def test_few_jobs_of_a_long_queue_are_taken_out_together(
    admin: Admin, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_GATHERING_S", 60.0)
    db.lpush(keys.queue("q"), *(raw_job(str(n), tags=["odd"] * (n % 5000 == 0)) for n in range(15_000)))
    task = counted(admin, order(admin, QUEUE, Action.DELETE, tag="odd"))
    removals = 0
    with db.monitor() as monitor:
        assert done(admin, task).progress.done == 3
        db.echo("end")
        for about in monitor.listen():
            words = about["command"].split()
            if words[0] == "ECHO":
                break
            removals += words[0] == "LREM" and words[1] == keys.queue("q")
    assert (removals, db.llen(keys.queue("q"))) == (1, 14_997)
