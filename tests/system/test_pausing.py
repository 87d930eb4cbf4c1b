"""Paused queues: no job is taken from them, by whom and when ever they were paused."""

from __future__ import annotations

from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

CODE = """
@worker.process("q", concurrency=2)
def handle(message):
    note("start", message.jid)
    if message.args:
        wait_for_file("finish")
    note("end", message.jid)

@worker.process("other", concurrency=1)
def other(message):
    note("other", message.jid)
"""


def test_a_paused_queue_takes_no_jobs_and_others_go_on(serve_either: Serve) -> None:
    with serve_either(CODE) as server:
        server.push("q", {"class": "A", "args": ["wait"], "jid": "long"})
        server.wait_for_notes(1, "start", "long")
        server.redis.sadd(server.keys.paused, "q", b"\xff")
        server.wait_for_event("manager.state", queue="q", state="paused")
        server.push("q", {"class": "A", "args": [], "jid": "a"}, {"class": "A", "args": [], "jid": "b"})
        server.push("other", {"class": "A", "args": [], "jid": "c"})
        server.wait_for_notes(1, "other", "c")
        server.let_go("finish")
        server.wait_for_notes(1, "end", "long")
        # Freed by the end of its job, its worker would have taken one long before the next two pass.
        for jid in "de":
            server.push("other", {"class": "A", "args": [], "jid": jid})
            server.wait_for_notes(1, "other", jid)
        assert server.waiting("q") == 2
        server.redis.srem(server.keys.paused, "q")
        server.wait_for_notes(1, "end", "a")
        server.wait_for_notes(1, "end", "b")
        assert [event["state"] for event in server.events("manager.state", queue="q")][:3] == [
            "running", "paused", "running",
        ]  # fmt: skip


def test_a_server_starts_with_a_paused_queue_and_stops(serve: Serve) -> None:
    with serve(CODE) as server:
        server.redis.sadd(server.keys.paused, "q")
        assert server.stop() == 0
        server.push("q", {"class": "A", "args": [], "jid": "a"})
        server.push("other", {"class": "A", "args": [], "jid": "b"})
        server.start(ready=False)
        server.wait_for_notes(1, "other", "b")
        server.wait_for_event("manager.state", queue="q", state="paused")
        assert (server.waiting("q"), server.stop()) == (1, 0)
        assert server.waiting("q") == 1
        assert [note for note in server.ledger() if note[1] == "start"] == []


def test_a_set_that_cannot_be_read_pauses_nothing(serve: Serve) -> None:
    with serve(CODE) as server:
        server.redis.sadd(server.keys.paused, "q")
        server.wait_for_event("manager.state", queue="q", state="paused")
        server.redis.set(server.keys.paused, "no set")
        server.wait_for_event("redis.refused", part="remote")
        # The last answer holds.
        server.push("q", {"class": "A", "args": [], "jid": "a"})
        server.redis.delete(server.keys.paused)
        server.wait_for_notes(1, "start", "a")
        wait_for(lambda: server.events("redis.accepted", part="remote"))
