"""Recorded payloads of Sidekiq 6, 7 and 8, go-workers and go-workers2: each is read, nothing of it is lost.

They were recorded with ``record.py``: ``origin`` is the program with its version, ``call`` what was called.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.protocol import timestamps
from pyworkers.protocol.message import Message
from tests.helpers.server_process import serving
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import HERE

RECORDED = 1795247115.0
"""About when, in epoch seconds: 2026-11-21."""
# Those of ActiveJob have a test of their own.
FILES = sorted(path for path in (HERE / "payloads").glob("*.json") if not path.name.startswith("ActiveJob"))
ALL = {
    f"{path.stem}-{number}": found
    for path in FILES
    for number, found in enumerate(json.loads(path.read_text())["payloads"])
}
# A field of some later version, whose number literals a decoder would change.
FUTURE = ',"x_future":{"half":1.50,"big":123456789012345678901234567890,"exp":1e3,"u":"\\u003c"}'
# What a failure writes; of the times also the text that go-workers wrote (pyworkers/protocol/retry.py).
OF_A_FAILURE = {"error_class", "error_message", "error_backtrace", "failed_at", "retried_at", "retry_count"}

APP = """
for queue in ("python", "ruby", "go"):
    @worker.process(queue, concurrency=2)
    def run(message):
        note(message.jid, message.job_class, message.args, message.attempt, message.enqueued_at, message.data)
        if os.environ.get("FAILING"):
            raise ValueError("python failed")
"""


def test_every_peer_is_recorded() -> None:
    assert {path.stem.rpartition("-")[0] for path in FILES} == {"Sidekiq", "go-workers", "go-workers2"}


@pytest.mark.parametrize("found", ALL.values(), ids=ALL)
def test_every_field_is_read(found: dict[str, Any]) -> None:
    message = Message.parse(found["payload"].encode(), "q", lambda: "made")
    data = json.loads(found["payload"])
    assert (message.jid, message.job_class) == (data["jid"], data["class"])
    assert message.args == (data["args"] if isinstance(data["args"], list) else [data["args"]])
    assert message.attempt == (data["retry_count"] + 1 if "retry_count" in data else 0)
    for name in data.keys() & {"created_at", "enqueued_at", "failed_at", "retried_at"}:
        assert timestamps.read(data[name]) == pytest.approx(RECORDED, abs=86_400)


def test_every_payload_runs_from_where_it_was_found(url: str, db: redis.Redis, tmp_path: Path) -> None:
    recorded = [found for found in ALL.values() if found["key"] != "dead"]
    for found in recorded:
        if "score" in found:
            db.zadd(found["key"], {found["payload"]: time.time() - 1})
        else:
            db.lpush(found["key"], found["payload"])
    with serving(tmp_path, url, "", APP, PYWORKERS_RETRY__DRAIN_GORETRY="true") as server:
        notes = server.wait_for_notes(len(recorded), timeout=PATIENCE_S)
        wait_for(lambda: not any(server.inprogress(queue) for queue in ("python", "ruby", "go")))
    ran = [(jid, attempt) for _, jid, _, _, attempt, _, _ in notes]
    expected = [json.loads(found["payload"]) for found in recorded]
    assert sorted(ran) == sorted((data["jid"], data.get("retry_count", -1) + 1) for data in expected)
    assert not db.exists("schedule", "retry", "goretry", "dead")


def test_nothing_is_lost_when_the_job_fails_here(url: str, db: redis.Redis, tmp_path: Path) -> None:
    recorded = {}
    for name, found in ALL.items():
        jid = json.loads(found["payload"])["jid"]
        # A job that was recorded twice is two jobs here.
        raw = (found["payload"][:-1] + FUTURE + "}").replace(jid, name)
        recorded[name] = raw
        db.lpush("queue:python", raw)
    with serving(tmp_path, url, "", APP, FAILING="1") as server:
        wait_for(lambda: db.zcard("retry") + db.zcard("dead") == len(recorded), PATIENCE_S, "all have failed")
        server.stop()
    for raw in (*db.zrange("retry", 0, -1), *db.zrange("dead", 0, -1)):
        after = json.loads(raw)
        before = json.loads(recorded[after["jid"]])
        assert FUTURE.encode() in raw
        for name in before.keys() - OF_A_FAILURE - {"queue", "at"}:
            assert after[name] == before[name], name
        assert after["retry_count"] == before.get("retry_count", -1) + 1
        assert after["error_message"] == "python failed"
        first = timestamps.read(before.get("failed_at"))
        assert first is None or timestamps.read(after["failed_at"]) == first
