"""``pyworkers move``: the jobs of a queue arrive in another real Redis, once each, in their order."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from pyworkers import Client
from pyworkers.api.moving import QueueMove
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.moving import MoveState
from pyworkers.protocol.status import JobState
from pyworkers.store import moving
from pyworkers.store.admin import Admin
from pyworkers.store.moving import ReadJobs
from tests.helpers import warm
from tests.helpers.replies import as_list
from tests.helpers.support import ROOT, free_port

Run = Callable[..., Result]
WORDS = ("move", "reports", "--from", "default", "--to", "archive")


@pytest.fixture
def run(two_redis: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYWORKERS_QUEUES__REPORTS__REDIS", "archive")

    def run(*more: str) -> Result:
        return CliRunner().invoke(main, [*WORDS, *more])

    return run


def job(number: int, queue: str = "reports", **fields: Any) -> bytes:
    """A job as no JSON of ours writes it: its bytes must stay."""
    about = {"jid": f"j{number}", "class": "Report", "queue": queue, "args": [number], **fields}
    return json.dumps(about).encode() + b" "


def fill(db: redis.Redis, keys: Keys, waiting: int = 450, later: int = 30) -> list[bytes]:
    """Waiting, scheduled and failed jobs of the queue, among those of another; returns all of the queue."""
    jobs = [job(number) for number in range(waiting + 2 * later)]
    db.lpush(keys.queue("reports"), *jobs[:waiting])
    for place, key in enumerate((keys.schedule, keys.retry)):
        own = jobs[waiting + place * later :][:later]
        db.zadd(key, {raw: 2e9 + number / 3 for number, raw in enumerate(own)})
        db.zadd(key, {job(number, "mail"): 2e9 for number in range(9)})
    return jobs


def arrived(db: redis.Redis, keys: Keys) -> list[bytes]:
    """All jobs of the queue in a Redis."""
    found = as_list(db.lrange(keys.queue("reports"), 0, -1))
    found += [raw.split(b" ", 2)[2] for raw in as_list(db.lrange(keys.moving("reports"), 0, -1))]
    for key in (keys.schedule, keys.retry):
        found += [raw for raw in as_list(db.zrange(key, 0, -1)) if b'"reports"' in raw]
    return found


def test_all_jobs_of_a_queue_arrive_with_their_bytes_order_and_times(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run
) -> None:
    jobs = fill(db, keys)
    scores = db.zrange(keys.retry, 0, -1, withscores=True)
    found = run("--yes", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (0, {
        "action": "move", "done": 510, "queue": "reports", "from": "default", "to": "archive",
        "moved": {"queue": 450, "schedule": 30, "retry": 30}, "left": {}, "dry_run": False,
    })  # fmt: skip
    assert as_list(there.lrange(keys.queue("reports"), 0, -1)) == jobs[449::-1]
    assert there.zrange(keys.retry, 0, -1, withscores=True) == [pair for pair in scores if pair[0] in jobs]
    assert (arrived(db, keys), db.zcard(keys.schedule)) == ([], 9)
    assert there.smembers(keys.queues) == {b"reports"}
    assert not db.exists(keys.moves) and b"queue.move" in as_list(db.lrange(keys.audit, 0, 0))[0]
    # The receipt of a move that has ended expires.
    assert all(there.ttl(key) > 0 for key in there.scan_iter(keys.moved("*")))


def command(*more: str, **points: str) -> subprocess.CompletedProcess[str]:
    """The command in its own process, with failpoints."""
    failing = ",".join(f"{name}=kill@{nth}" for name, nth in points.items())
    more_env = {"PYTHONPATH": str(ROOT), "PYWORKERS_FAILPOINTS": failing}
    return warm.run(["-m", "pyworkers", *WORDS, *more], cwd=ROOT, env=os.environ | more_env)


# A kill at each step, of the first portion and of later ones.
KILLS = [
    "begun",
    *(f"{step}@{nth}" for nth in (1, 2) for step in ("parked", "pushed", "removed")),
    "parked@1",
    "ended",
]


@pytest.mark.fault("D5")
def test_a_kill_at_each_step_loses_no_job_and_doubles_none(
    db: redis.Redis, there: redis.Redis, keys: Keys, two_redis: None
) -> None:
    filled = fill(db, keys, 900, 150)
    jobs = sorted(filled)
    for kill in KILLS:
        step, _, nth = kill.partition("@")
        ended = command("--yes", **{f"move_{step}": nth or "1"})
        assert ended.returncode == -9, (kill, ended.stderr)
        both = arrived(db, keys) + arrived(there, keys)
        if step == "pushed":
            # Parked here, and there already.
            both = list(set(both))
        assert sorted(both) == jobs, kill
    ended = command("--yes")
    assert ended.returncode == 0, ended.stderr
    assert (arrived(db, keys), sorted(arrived(there, keys))) == ([], jobs)
    assert as_list(there.lrange(keys.queue("reports"), 0, -1)) == filled[899::-1]
    assert not db.exists(keys.moves)


def test_a_job_that_a_killed_move_has_parked_is_found(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.hset(keys.moves, "reports", "0123 1 archive")
    db.rpush(keys.moving("reports"), b"queue 0 " + job(1), b"schedule 2e+09 " + job(2), b"another program's")
    with Client(redis_url, namespace=namespace) as client:
        states = [client.find(jid).state for jid in ("j1", "j2", "j3")]
    assert states == [JobState.WAITING, JobState.SCHEDULED, JobState.UNKNOWN]


@pytest.mark.fault("D5")
@pytest.mark.parametrize("step", ["begun", "parked", "pushed", "removed", "ended"])
def test_what_a_killed_move_has_parked_goes_back_unless_it_has_arrived(
    db: redis.Redis, there: redis.Redis, keys: Keys, two_redis: None, step: str
) -> None:
    filled = fill(db, keys, 300, 20)
    assert command("--yes", **{f"move_{step}": "1"}).returncode == -9
    assert command("--back", back_closed="1").returncode == -9
    if step != "begun":
        continued = command("--yes")
        assert continued.returncode == 1 and "finish that first: --back" in continued.stderr
    # Only jobs that have arrived are removed.
    assert command("--back", back_removed="1").returncode == (-9 if step == "pushed" else 0)
    if step == "pushed":
        assert command("--back").returncode == 0
    assert not db.exists(keys.moves, keys.moving("reports"))
    assert sorted(arrived(db, keys) + arrived(there, keys)) == sorted(filled)
    again = command("--back")
    assert again.returncode == 1 and "no job is parked" in again.stderr
    assert command("--yes").returncode == 0
    assert as_list(there.lrange(keys.queue("reports"), 0, -1)) == filled[299::-1]


def test_a_move_that_hung_pushes_nothing_after_its_jobs_went_back(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run, redis_url: str, second_redis_url: str
) -> None:
    jobs = fill(db, keys, 9, 1)
    ends = [RedisConfig(url, keys.namespace) for url in (redis_url, second_redis_url)]
    source, target = map(Admin, ends)
    state = MoveState("reports", "x", 0, "archive")
    source.run(moving.begin(keys, state))
    target.run(moving.expect(keys, state))
    portion = source.run(moving.park(keys, state, ReadJobs("queue", jobs[:9], 9), 0))
    assert portion is not None and len(portion.jobs) == 9
    assert run("--back").stdout == "gave back 9 jobs\n"
    assert target.run(moving.push(keys, state, portion, ())) == -1
    assert source.run(moving.park(keys, state, ReadJobs("queue", jobs[:9], 9), 0)) is None
    assert as_list(db.lrange(keys.queue("reports"), 0, -1)) == jobs[8::-1]
    assert not there.exists(keys.queue("reports")) and there.ttl(keys.moved("x")) > 0


@pytest.mark.parametrize("gone", ["away", "other data"])
def test_it_is_unknown_whether_parked_jobs_have_arrived_if_the_target_is_gone(
    db: redis.Redis, keys: Keys, run: Run, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    db.hset(keys.moves, "reports", "x 1 archive")
    db.rpush(keys.moving("reports"), b"queue 0 " + job(1), b"retry 7.5 " + job(2))
    if gone == "away":
        monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__URL", f"redis://127.0.0.1:{free_port()}")
    refused = run("--back")
    assert refused.exit_code == 1
    assert "whether the 2 parked jobs of reports are in the target is unknown: " in refused.stderr
    assert ("Connection refused" if gone == "away" else "it has no receipt of this move") in refused.stderr
    assert (
        "with --yes they are put back without this check; those that have arrived run twice" in refused.stderr
    )
    assert db.llen(keys.moving("reports")) == 2
    found = json.loads(run("--back", "--yes", "--json").stdout)
    assert (found["back"], found["arrived"]) == (2, 0)
    assert as_list(db.lrange(keys.queue("reports"), 0, -1)) == [job(1)]
    assert db.zrange(keys.retry, 0, -1, withscores=True) == [(job(2), 7.5)]
    assert not db.exists(keys.moves, keys.moving("reports"))


def test_two_moves_at_once_and_servers_that_take_jobs_double_none(
    db: redis.Redis, there: redis.Redis, keys: Keys, redis_url: str, second_redis_url: str
) -> None:
    jobs = fill(db, keys, 1500)
    taken: list[bytes] = []
    ends = RedisConfig(redis_url, keys.namespace), RedisConfig(second_redis_url, keys.namespace)

    def move() -> None:
        try:
            for _ in QueueMove("reports", *ends).move():
                taken.extend(as_list(db.rpop(keys.queue("reports"), 5) or []))
        except PyworkersError as error:
            assert "has ended this move" in error.message

    threads = [threading.Thread(target=move) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    move()
    assert sorted(arrived(db, keys) + arrived(there, keys) + taken) == sorted(jobs)


def test_a_source_that_has_lost_the_last_writes_loses_no_further_job(
    db: redis.Redis, there: redis.Redis, keys: Keys, redis_url: str, second_redis_url: str
) -> None:
    jobs = fill(db, keys, 450, 1)
    ends = RedisConfig(redis_url, keys.namespace), RedisConfig(second_redis_url, keys.namespace)
    for step in QueueMove("reports", *ends).move():
        if step:
            break
    lost = as_list(there.lrange(keys.queue("reports"), 0, -1))
    # As on a replica that was promoted without the last portion; servers have taken its jobs meanwhile.
    state: Any = db.hget(keys.moves, "reports")
    db.hset(keys.moves, "reports", state.replace(b" 1", b" 0", 1))
    for _ in QueueMove("reports", *ends).move():
        pass
    assert lost and sorted(arrived(there, keys)) == sorted(jobs)


def test_a_user_without_a_right_in_the_target_gets_no_job_twice(
    db: redis.Redis, there: redis.Redis, keys: Keys, redis_url: str, second_redis_url: str
) -> None:
    jobs = fill(db, keys, 9, 1)
    db.hset(keys.job("j1"), "state", "waiting")
    ends = RedisConfig(redis_url, keys.namespace), RedisConfig(second_redis_url, keys.namespace)
    there.execute_command("ACL", "SETUSER", "default", "-hset")
    try:
        for _ in range(2):
            with pytest.raises(StoreError):
                list(QueueMove("reports", *ends).move())
    finally:
        there.execute_command("ACL", "SETUSER", "default", "+hset")
    list(QueueMove("reports", *ends).move())
    assert sorted(arrived(there, keys)) == sorted(jobs)


def test_a_move_to_a_redis_that_the_queue_is_not_on_is_warned_of(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--dry-run").stderr == ""
    monkeypatch.delenv("PYWORKERS_QUEUES__REPORTS__REDIS")
    for words in ("--dry-run", "--yes"):
        assert run(words).stderr == (
            "Warning: the configuration has reports on default: no server with it takes jobs from archive\n"
        )


STAYING: dict[str, dict[str, Any]] = {
    "lock": {"unique_key": "Report|reports|1"},
    "batch": {"batch": "b"},
    "chain": {"then": {"v": 1, "steps": []}},
    "batch of Sidekiq": {"bid": "x"},
    "awaited": {"track": 60},
}


def test_jobs_on_whose_end_others_depend_stay_in_their_order_with_the_reason(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run
) -> None:
    staying = [job(1000 + number, **fields) for number, fields in enumerate(STAYING.values())]
    staying.append(b"no job")
    db.zadd(keys.awaited, {"j1004": time.time()})
    for number, raw in enumerate([*staying] * 3):
        db.lpush(keys.queue("reports"), raw, job(number), job(100 + number))
    db.zadd(keys.retry, {staying[0]: 1.0})
    looked = run("--dry-run")
    assert (looked.exit_code, looked.stdout) == (0, "would move 36 jobs (waiting 36)\n")
    found = run("--yes")
    assert (found.exit_code, found.stdout) == (1, "moved 36 jobs (waiting 36)\n")
    assert found.stderr.splitlines() == [
        "3 jobs stay: a program waits for its result",
        "4 jobs stay: it has a lock (unique_for), which stays in its Redis",
        "6 jobs stay: it is a member of a batch, which stays in its Redis",
        "3 jobs stay: it is a step of a chain, which stays in its Redis",
        "3 jobs stay: it is invalid: not JSON",
    ]
    assert as_list(db.lrange(keys.queue("reports"), 0, -1)) == [*staying[::-1]] * 3
    assert (db.zcard(keys.retry), there.llen(keys.queue("reports"))) == (1, 36)


def test_jobs_move_from_between_many_that_stay(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run
) -> None:
    jobs = [job(number, **({} if number % 10 == 0 else {"batch": "b"})) for number in range(1000)]
    db.lpush(keys.queue("reports"), *jobs)
    found = json.loads(run("--yes", "--json").stdout)
    assert (found["done"], list(found["left"].values())) == (100, [900])
    assert as_list(there.lrange(keys.queue("reports"), 0, -1)) == jobs[::10][::-1]


def test_what_a_redis_knows_of_a_job_moves_with_it(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run
) -> None:
    db.lpush(keys.queue("reports"), job(1, track=60))
    db.hset(keys.job("j1"), mapping={"state": "waiting", "run:1": b"\xff"})
    db.hset(keys.iteration("j1"), "c", "[7]")
    db.expire(keys.iteration("j1"), 1000)
    assert run("--yes").exit_code == 0
    assert there.hgetall(keys.job("j1")) == {b"state": b"waiting", b"run:1": b"\xff"}
    assert there.hget(keys.iteration("j1"), "c") == b"[7]" and there.ttl(keys.iteration("j1")) > 900
    assert not db.exists(keys.job("j1"), keys.iteration("j1"))


def refusals(
    db: redis.Redis, there: redis.Redis, keys: Keys
) -> dict[str, tuple[Callable[[], Any], tuple[str, ...], str]]:
    parked = b"queue 0 " + job(7)
    return {
        "no yes": (lambda: None, (), "pass --yes"),
        "ordered": (lambda: there.hset(keys.ordered("reports"), "fence", 3), ("--yes",), "an ordered queue"),
        "the same": (lambda: None, ("--yes", "--to", "default"), "the same Redis"),
        "no such": (lambda: None, ("--yes", "--to", "attic"), "no Redis 'attic' in"),
        "another target": (
            lambda: (db.hset(keys.moves, "reports", "x 1 attic"), db.rpush(keys.moving("reports"), parked)),
            ("--yes",), "a move of reports to attic has parked 1 jobs",
        ),
        "a key of another type": (
            lambda: there.set(keys.schedule, "text"), ("--yes",), "the jobs stay parked",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("case", refusals(redis.Redis(), redis.Redis(), Keys()))
def test_it_is_refused_and_no_job_is_lost(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run, case: str
) -> None:
    jobs = fill(db, keys, 3, 1)
    prepare, words, reason = refusals(db, there, keys)[case]
    prepare()
    found = run(*words)
    assert found.exit_code in (1, 2) and reason in found.output
    assert not there.exists(keys.queue("reports")) and set(jobs) <= set(arrived(db, keys))


ODD = [
    b"\xff\xfe",
    b"no job",
    b"retry nan {}",
    b"retry 1e-999 {}",
    b"retry in {}",
    b"retry x {}",
    b"elsewhere 0 {}",
    b"",
    b"queue 0",
    b"queue x {}",
]


def begin(db: redis.Redis, there: redis.Redis, keys: Keys, arrived: int, *parked: bytes) -> None:
    """A move whose process died: it has parked these entries, as its portion 1."""
    db.hset(keys.moves, "reports", "x 1 archive")
    there.set(keys.moved("x"), arrived)
    db.rpush(keys.moving("reports"), *parked)


@pytest.mark.parametrize("back", [True, False])
def test_odd_entries_among_the_parked_jobs_are_kept_and_reported(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run, back: bool
) -> None:
    jobs = [b"queue 0 " + job(1), b"retry 7.5 " + job(2), b"schedule inf " + job(3), b"schedule 0 " + job(4)]
    begin(db, there, keys, 0, *ODD, *jobs)
    found = run("--back" if back else "--yes")
    assert "10 entries in the list of parked jobs had no place of a job" in found.stderr
    assert ("gave back 4 jobs" if back else "moved 4 jobs") in found.stdout
    place = db if back else there
    waiting = as_list(db.lrange(keys.queue("reports"), 0, -1)) + as_list(
        there.lrange(keys.queue("reports"), 0, -1)
    )
    assert sorted(waiting) == sorted([*ODD, job(1)]) and job(1) in place.lrange(keys.queue("reports"), 0, -1)
    assert place.zrange(keys.retry, 0, -1, withscores=True) == [(job(2), 7.5)]
    assert place.zrange(keys.schedule, 0, -1) == [job(4), job(3)]
    assert not db.exists(keys.moves, keys.moving("reports"))


@pytest.mark.parametrize("back", [True, False])
def test_an_odd_entry_next_to_jobs_that_have_arrived_is_kept(
    db: redis.Redis, there: redis.Redis, keys: Keys, run: Run, back: bool
) -> None:
    begin(db, there, keys, 1, b"queue 0 " + job(1), b"no job")
    assert "1 entry" in run("--back" if back else "--yes").stderr
    assert as_list(db.lrange(keys.queue("reports"), 0, -1)) == [b"no job"]
    assert not there.exists(keys.queue("reports")) and not db.exists(keys.moves, keys.moving("reports"))


@pytest.mark.parametrize("words", [("--back",), ("--yes",), ("--dry-run",)])
def test_a_list_of_parked_jobs_of_another_type_is_named(
    db: redis.Redis, keys: Keys, run: Run, words: tuple[str, ...]
) -> None:
    db.hset(keys.moves, "reports", "x 1 archive")
    db.set(keys.moving("reports"), "text")
    refused = run(*words)
    assert refused.exit_code == 1
    assert f"the key {keys.moving('reports')} is not a list of parked jobs" in refused.stderr
    assert db.get(keys.moving("reports")) == b"text"


def test_the_audit_says_what_came_of_a_refused_command(db: redis.Redis, keys: Keys, run: Run) -> None:
    for words, reason in (
        (("--back",), "no move of reports has begun, or it has ended: no job is parked"),
        (("--yes", "--to", "default"), "reports cannot move: source and target are the same Redis"),
    ):
        assert run(*words).exit_code == 1
        entry = json.loads(as_list(db.lrange(keys.audit, 0, 0))[0])
        assert (entry["action"], entry["result"]) == ("queue.move", f"failed: {reason}")


def test_check_names_a_move_that_has_not_ended(
    db: redis.Redis, keys: Keys, redis_url: str, namespace: str
) -> None:
    db.hset(keys.moves, "reports", "x 1 archive")
    db.rpush(keys.moving("reports"), b"queue 0 " + job(1))
    result = CliRunner().invoke(main, ["check", "--json", "--url", redis_url, "--namespace", namespace])
    [found] = [one for one in json.loads(result.stdout)["findings"] if one["code"] == "move"]
    message = "the move of the queue 'reports' to archive has not ended, and 1 job is on the way"
    assert (found["message"], found["advice"]) == (message, False)
