"""``pyworkers adopt``: what a dead process of another program has left, as real Redis has it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from pyworkers.cli import adopt as command
from pyworkers.cli import main
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import script as request_script
from tests.helpers.records import register
from tests.helpers.replies import as_list

GO = ("go-workers", "--process", "worker-1")
PRO = ("sidekiq-pro", "--process", "web:7:abc")
Run = Callable[..., Result]


@pytest.fixture
def db(one_redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(one_redis_url) as db:
        yield db


@pytest.fixture
def run(one_redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "_WATCH_S", 0.05)

    def run(*words: str, name: str = "adopt") -> Result:
        options = ("--url", one_redis_url, "--namespace", namespace)
        return CliRunner().invoke(main, [name, *words, *options])

    return run


def leave(db: redis.Redis, keys: Keys, name: str, jobs: int, queue: str = "mail") -> list[bytes]:
    """Have a process take jobs that no JSON of ours would write; returns them, the oldest first."""
    db.sadd(keys.queues, queue)
    taken = [b'{ "jid":"%d" ,"args":[1e400], "x":"\\ud800" }' % number for number in range(jobs)]
    for raw in taken:
        db.lpush(keys.queue(name), raw)
    return taken


@pytest.mark.parametrize(
    ("words", "name"),
    [(GO, "mail:worker-1:inprogress"), (PRO, "sq|web:7:abc|mail"), (("go-workers2", *GO[1:]), "")],
)
def test_what_a_dead_process_has_left_returns_as_it_is_and_first(
    db: redis.Redis, keys: Keys, run: Run, words: tuple[str, ...], name: str
) -> None:
    name = name or "mail:worker-1:inprogress"
    taken = leave(db, keys, name, 250)
    db.lpush(keys.queue("mail"), b"waiting")
    found = run(*words, "--yes", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (
        0, {"action": "adopt", "done": 250, "process": words[2], "queues": {"mail": 250}, "dry_run": False},
    )  # fmt: skip
    # The oldest is popped first.
    assert as_list(db.lrange(keys.queue("mail"), 0, -1)) == [b"waiting", *reversed(taken)]
    assert not db.exists(keys.queue(name))
    audit = json.loads(as_list(db.lrange(keys.audit, 0, 0))[0])
    assert "process.adopt" in audit.values() and words[2] in audit.values() and "250" in audit.values()


def test_a_kill_in_the_middle_loses_nothing_and_the_command_goes_on_later(
    db: redis.Redis, keys: Keys, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = leave(db, keys, "mail:worker-1:inprogress", 250)
    calls: list[int] = []

    def killed(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return request_script(*arguments)

    monkeypatch.setattr("pyworkers.store.foreign.script", killed)
    assert run(*GO, "--yes").exit_code != 0
    assert db.llen(keys.queue("mail")) == 200
    assert b"perhaps done" in as_list(db.lrange(keys.audit, 0, 0))[0]
    monkeypatch.undo()
    monkeypatch.setattr(command, "_WATCH_S", 0.05)
    assert run(*GO, "--yes").exit_code == 0
    assert sorted(as_list(db.lrange(keys.queue("mail"), 0, -1))) == sorted(taken)


def refusals(db: redis.Redis, keys: Keys) -> dict[str, tuple[Callable[[], Any], tuple[str, ...], str]]:
    now = int(time.time())
    entry = {"pid": "1", "tid": '"x"', "queue": '"mail"', "in_progress_queue": '"mail:worker-1:inprogress"'}
    return {
        "no yes": (lambda: None, GO, "pass --yes"),
        "nothing": (lambda: None, ("go-workers", "--process", "worker-9", "--yes"), "worker-9 has jobs"),
        "ours": (
            lambda: None,
            ("go-workers", "--process", "h:1:0123456789ab", "--yes"),
            "a server of pyworkers",
        ),
        "go-workers2 lives": (
            lambda: register(
                db, keys, "h:1:" + 24 * "a", {}, beat=str(now), worker_heartbeats=json.dumps([entry])
            ),
            (*GO, "--yes"),
            "runs: its heartbeat",
        ),
        "Sidekiq lives": (
            lambda: register(db, keys, "web:7:abc", {}, beat=str(now)), (*PRO, "--yes"), "runs: its heartbeat"
        ),
        "of which queue": (
            lambda: db.lpush(keys.queue("a:b:c:inprogress"), b"{}"),
            ("go-workers", "--process", "c", "--yes"),
            "of no known queue",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("case", refusals(redis.Redis(), Keys()))
def test_it_is_refused(db: redis.Redis, keys: Keys, run: Run, case: str) -> None:
    prepare, words, reason = refusals(db, keys)[case]
    leave(db, keys, "mail:worker-1:inprogress", 2)
    leave(db, keys, "sq|web:7:abc|mail", 2)
    prepare()
    found = run(*words)
    assert found.exit_code in (1, 2) and reason in found.output
    assert db.llen(keys.queue("mail")) == 0


def test_it_is_refused_while_a_list_changes(
    db: redis.Redis, keys: Keys, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(db, keys, "mail:worker-1:inprogress", 3)
    monkeypatch.setattr(
        "pyworkers.cli.adopt.time.sleep", lambda _: db.rpop(keys.queue("mail:worker-1:inprogress"))
    )
    found = run(*GO, "--yes")
    assert (found.exit_code, db.llen(keys.queue("mail"))) == (1, 0)
    assert "has changed: its process works" in found.output


def test_a_queue_of_another_type_keeps_the_jobs_where_they_are(db: redis.Redis, keys: Keys, run: Run) -> None:
    leave(db, keys, "mail:worker-1:inprogress", 3)
    db.set(keys.queue("mail"), "text")
    found = run(*GO, "--yes")
    assert (found.exit_code, db.llen(keys.queue("mail:worker-1:inprogress"))) == (1, 3)


def test_a_dry_run_and_one_queue_of_several(db: redis.Redis, keys: Keys, run: Run) -> None:
    leave(db, keys, "mail:worker-1:inprogress", 3)
    leave(db, keys, "low:worker-1:inprogress", 2, "low")
    assert run(*GO, "--dry-run").output == "would return 5 jobs to low (2), mail (3)\n"
    found = run(*GO, "--queue", "low", "--yes")
    assert found.stdout == "worker-1: 2 jobs returned to low (2)\n"
    assert (db.llen(keys.queue("low")), db.llen(keys.queue("mail"))) == (2, 0)


def test_check_lists_what_processes_without_a_heartbeat_have(db: redis.Redis, keys: Keys, run: Run) -> None:
    leave(db, keys, "mail:worker-1:inprogress", 3)
    leave(db, keys, "low:worker-1:inprogress", 1, "low")
    leave(db, keys, "sq|web:7:abc|mail", 2)
    leave(db, keys, "mail:h:1:0123456789ab:inprogress", 2)
    register(db, keys, "web:7:abc", {}, beat=str(int(time.time())))
    found = json.loads(run("--json", name="check").stdout)["findings"]
    [left] = [one for one in found if one["code"] == "foreign_lists"]
    assert left["message"].startswith("the go-workers process worker-1 has 4 jobs in progress in low, mail")
    assert (left["fix"], left["advice"]) == ("if it is: pyworkers adopt go-workers --process worker-1", True)
