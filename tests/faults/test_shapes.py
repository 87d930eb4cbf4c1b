"""Replies of an unexpected shape to a whole server: it closes the connection, says so, and goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.helpers.rewriter import Rewriter, rewriting
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import wait_for

CODE = """
@worker.cron("* * * * *")
@worker.job(queue="q", concurrency=2)
def sweep():
    pass

@worker.process("r", concurrency=2)
def handle(message):
    note("end", *message.args)
"""


_TYPES = {b"+": bytes, b"$": bytes, b":": int, b"*": list}
# What an idle server asks within a few seconds.
ASKED = {"renew", "look", "exchange", "BRPOPLPUSH", "EXISTS", "HGETALL", "TIME"}


@pytest.mark.parametrize(
    "other", [b"*1\r\n:5\r\n", b":5\r\n", b"+hm\r\n", b""], ids=["list", "integer", "status", "extra"]
)
def test_each_command_is_answered_with_something_else_once(
    tmp_path: Path, one_redis_url: str, namespace: str, other: bytes
) -> None:
    seen: set[str] = set()

    def rewrite(name: str, reply: bytes) -> bytes:
        if name in seen or reply.startswith(b"-"):
            return reply
        seen.add(name)
        if not other:
            return b"*1\r\n:5\r\n" + reply
        # The blocking move's nothing is an empty list, in whose place bytes would be a job.
        kind = bytes if reply.startswith(b"*-1") else _TYPES[reply[:1]]
        return reply if kind is _TYPES[other[:1]] else other

    with (
        rewriting(one_redis_url, rewrite, grace_s=1.0) as proxy,
        serving(
            tmp_path,
            proxy.url,
            namespace,
            CODE,
            direct_url=one_redis_url,
            PYWORKERS_SERVER__LEASE="6",
        ) as server,
    ):
        _run_a_job(server, 1)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: seen >= ASKED)
        assert ASKED - seen == set()
        _is_well(server, proxy)
        _run_a_job(server, 2)
        assert server.stop() == 0
        downs = server.events("redis.down")
        assert "UNEXPECTED" in {event["code"] for event in downs}
        assert any("Redis sent an unexpected reply: " in event["error"] for event in downs)
        assert server.events("server.failed") == []
        assert "Traceback" not in server.log_text()


def _run_a_job(server: ServerProcess, number: int) -> None:
    server.push("r", {"class": "Any", "args": [number], "jid": f"job{number}"})
    server.wait_for_notes(1, "end", number)


def _is_well(server: ServerProcess, proxy: Rewriter) -> None:
    """All outages are over, and nothing was sent over a connection that had lost step."""

    def over() -> bool:
        downs, ups = server.events("redis.down"), server.events("redis.up")
        return len(downs) == len(ups) > 0

    wait_for(over, message="the end of each outage")
    assert proxy.reused == []
