"""Jobs that several dead servers had: a live server runs one of them at a time, alongside its other jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyworkers.protocol.suspects import MARK, field_of
from tests.helpers.records import raw_job
from tests.helpers.replies import as_list
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

CODE = """
@worker.process("q", concurrency=3, retry=3)
def handle(message):
    note("start", message.jid)
    if message.args[0] == "fail" and message.attempt == 0:
        raise Retry(delay=3600)
    if message.args[0] == "wait":
        wait_for_file(f"end-{message.jid}")
    note("end", message.jid)
"""
SETTINGS = """
[server]
lease = 2
shutdown_timeout = 5
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "workers.toml"
    path.write_text(SETTINGS)
    return str(path)


def suspect(server: ServerProcess, jid: str, what: str = "wait", entry: str = "2 0") -> bytes:
    """A job that recovery has given back, with its entry."""
    raw = raw_job(jid, args=[what]) + MARK
    server.redis.hset(server.keys.suspects, field_of(raw), entry)
    server.redis.expire(server.keys.suspects, 3600)
    server.push("q", raw)
    return raw


def test_suspects_run_one_after_the_other_beside_ordinary_jobs(serve_either: Serve, config: str) -> None:
    with serve_either(CODE, "--config", config) as server:
        raws = [suspect(server, jid) for jid in "abc"]
        server.wait_for_notes(1, "start", "a")
        [identity] = as_list(server.redis.hkeys(server.keys.owners))
        assert server.redis.hget(server.keys.suspects, identity) == field_of(raws[0]).encode()
        for number in range(3):
            server.push("q", raw_job(f"ordinary{number}", args=["go"]))
            server.wait_for_notes(1, "end", f"ordinary{number}")
        # Beside it: one that only one dead server had.
        suspect(server, "once", "go", "1 0")
        server.wait_for_notes(1, "end", "once")
        wait_for(lambda: sorted(server.inprogress("q")) == sorted(raws), message="it is settled")
        for jid, raw in zip("bc", raws[1:], strict=True):
            server.let_go(f"end-{chr(ord(jid) - 1)}")
            server.wait_for_notes(1, "start", jid)
            assert server.redis.hget(server.keys.suspects, identity) == field_of(raw).encode()
        server.let_go("end-c")
        wait_for(lambda: server.settled("q"))
        wait_for(lambda: not server.redis.exists(server.keys.suspects), message="nothing is noted any more")
        notes = [note[1:] for note in server.ledger() if note[2] in "abc"]
        assert notes == [[word, jid] for jid in "abc" for word in ("start", "end")]
        assert len(server.events("job.held")) == 3
        assert not server.events("job.adopted")
        assert server.stop() == 0


def test_a_pause_gives_the_waiting_suspects_back_and_a_stop_all(serve: Serve, config: str) -> None:
    with serve(CODE, "--config", config) as server:
        raws = [suspect(server, jid) for jid in "abc"]
        server.wait_for_notes(1, "start", "a")
        server.wait_for_event("job.held", 3)
        server.redis.sadd(server.keys.paused, "q")
        wait_for(lambda: server.waiting("q") == 2, message="they are given back")
        assert server.inprogress("q") == raws[:1]
        assert as_list(server.redis.lrange(server.keys.queue("q"), 0, -1)) == [raws[2], raws[1]]
        server.redis.srem(server.keys.paused, "q")
        wait_for(lambda: server.waiting("q") == 0)
        assert server.stop() == 0
        # The oldest at the end that is popped next. The stop has counted nothing.
        assert as_list(server.redis.lrange(server.keys.queue("q"), 0, -1)) == raws[::-1]
        assert as_list(server.redis.hvals(server.keys.suspects)) == [b"2 0"] * 3


def test_a_suspect_that_fails_is_retried_without_a_mark(serve: Serve, config: str) -> None:
    with serve(CODE, "--config", config) as server:
        suspect(server, "a", "fail")
        wait_for(lambda: server.zset("retry"))
        [(payload, _)] = server.zset("retry")
        assert payload.endswith(b"}")
        assert json.loads(payload)["retry_count"] == 0
        wait_for(lambda: not server.redis.exists(server.keys.suspects))


def test_a_cancelled_suspect_does_not_wait_for_its_turn(serve: Serve, config: str) -> None:
    with serve(CODE, "--config", config) as server:
        first, second = suspect(server, "a"), suspect(server, "b")
        server.wait_for_notes(1, "start", "a")
        server.wait_for_event("job.held", 2)
        server.redis.zadd(server.keys.cancelled, {"b": 2e9})
        server.wait_for_event("job.cancelled", jid="b")
        wait_for(lambda: server.inprogress("q") == [first])
        assert not server.redis.hexists(server.keys.suspects, field_of(second))
        assert [note for note in server.ledger() if note[2] == "b"] == []
