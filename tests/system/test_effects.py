"""Effects that a link of the application adds to an outcome, through the real server."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import pytest

from pyworkers.protocol.keys import Keys
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

CODE = """
from pyworkers.protocol.effects import CountOut, FreeSlot, StoreValue, Unlock

CALLBACK = b'{"class":"finish","args":[7],"jid":"callback","queue":"q"}'

@worker.middleware
def effects(message, call_next):
    outcome = call_next(message)
    if message.job_class != "member":
        return outcome
    return outcome.with_effects(
        Unlock("lock:7", message.jid),
        FreeSlot("no set", "x"),
        CountOut("batch:7", "pending", "q", CALLBACK),
        StoreValue("result:" + message.jid, b"1", 60),
    )

def unlock_unless_retried(message, outcome):
    if message.args[:1] == ["broken"]:
        raise LookupError("no effects")
    if message.job_class == "locked" and outcome.fate.name != "RETRY":
        yield Unlock("lock:" + message.jid, "me")

worker.effects.append(unlock_unless_retried)

@worker.job(queue="q", retry=1, retry_in=lambda count, error, message: 0.1)
def locked(what):
    note("locked", current_message().jid, current_message().attempt)
    if what == "die":
        raise Kill("at once")
    if what == "fail":
        raise ValueError("failed")
    if what == "wait":
        time.sleep(60)

@worker.job(queue="q", concurrency=2)
def member(fail):
    note("member", current_message().jid)
    if fail:
        raise ValueError("failed")

@worker.job(queue="q")
def finish(number):
    note("finish", number)
"""


@pytest.fixture
def server(serve_either: Serve) -> Iterator[ServerProcess]:
    with serve_either(CODE, PYWORKERS_SERVER__SHUTDOWN_TIMEOUT="3") as running:
        yield running


def member(jid: str, fail: bool = False) -> bytes:
    return json.dumps({"class": "member", "args": [fail], "jid": jid}).encode()


def test_the_effects_of_a_link_happen_with_the_settlement(server: ServerProcess, namespace: str) -> None:
    redis, own = server.redis, Keys(namespace).own
    redis.hset(own("batch:7"), mapping={"pending": 2})
    redis.set(own("lock:7"), "second")
    redis.set(own("no set"), "x")
    server.push("q", member("first"))
    server.wait_for_notes(1, "member", "first")
    wait_for(lambda: redis.hget(own("batch:7"), "pending") == b"1", message="the first member is counted out")
    assert redis.get(own("lock:7")) == b"second"
    server.push("q", member("second"))
    server.wait_for_notes(1, "finish", 7)
    assert redis.get(own("lock:7")) is None
    assert redis.get(own("result:first")) == redis.get(own("result:second")) == b"1"
    wait_for(lambda: not server.inprogress("q"), message="settled")
    failed = server.wait_for_event("effect.failed", effect="FreeSlot")
    assert (failed["key"], failed["queue"]) == ("no set", "q")
    assert failed["error"].startswith("WRONGTYPE")


def test_effects_may_follow_from_any_outcome(server: ServerProcess, namespace: str) -> None:
    redis, own = server.redis, Keys(namespace).own
    attempts = {"succeed": [0], "die": [0], "fail": [0, 1]}
    for what in attempts:
        redis.set(own(f"lock:{what}"), "me")
        server.push("q", {"class": "locked", "args": [what], "jid": what})

    def is_free(what: str) -> bool:
        return not redis.exists(own(f"lock:{what}"))

    for what in attempts:
        wait_for(functools.partial(is_free, what), message=f"the lock of {what} is released")
    assert attempts == {
        what: [attempt for _, word, jid, attempt in server.ledger() if (word, jid) == ("locked", what)]
        for what in attempts
    }
    assert {json.loads(raw)["jid"] for raw, _ in server.zset("dead")} == {"die", "fail"}
    assert server.zset("retry") == []


def test_effects_of_a_job_that_a_stop_interrupts_happen_when_it_is_given_back(
    server: ServerProcess, namespace: str
) -> None:
    redis, lock = server.redis, Keys(namespace).own("lock:j1")
    redis.set(lock, "me")
    server.push("q", json.dumps({"class": "locked", "args": ["wait"], "jid": "j1"}).encode())
    server.wait_for_notes(1, "locked", "j1", 0)
    server.stop()
    assert (server.waiting("q"), server.inprogress("q"), redis.exists(lock)) == (1, [], 0)


def test_effects_that_cannot_be_computed_do_not_change_the_outcome(server: ServerProcess) -> None:
    server.push("q", json.dumps({"class": "locked", "args": ["broken"], "jid": "j1"}).encode())
    server.wait_for_event("hook.failed", hook="effects", jid="j1")
    wait_for(lambda: not server.inprogress("q"), message="settled")
    assert server.zset("retry") == server.zset("dead") == []


def test_a_job_that_raised_has_no_effects_of_links(server: ServerProcess, namespace: str) -> None:
    redis, own = server.redis, Keys(namespace).own
    redis.hset(own("batch:7"), mapping={"pending": 2})
    server.push("q", member("failing", fail=True))
    wait_for(lambda: server.zset("retry"), message="a retry")
    assert redis.hget(own("batch:7"), "pending") == b"2"
