"""From a hand-pushed envelope to a settled job, through every process."""

from __future__ import annotations

from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for
from tests.helpers.warm import COLD


def test_an_envelope_pushed_by_hand_runs_in_a_forked_worker_and_is_settled(serve_either: Serve) -> None:
    code = """
    @worker.process("myqueue", concurrency=2)
    def handle(message):
        note(message.jid, message.queue, message.job_class, message.args, message.attempt)
    """
    with serve_either(code, **COLD) as server:
        server.push("myqueue", {"class": "Add", "args": [1, "ä"], "jid": "abc", "queue": "myqueue"})
        [[pid, *words]] = server.wait_for_notes(1)
        assert words == ["abc", "myqueue", "Add", [1, "ä"], 0]
        assert pid in server.tree()
        wait_for(lambda: not server.inprogress("myqueue"), message="the job is settled")
        done = server.wait_for_event("job.done")
        assert (done["jid"], done["job_class"], done["queue"], done["attempt"]) == (
            "abc",
            "Add",
            "myqueue",
            0,
        )
        assert server.stop() == 0
        assert server.redis.get(server.keys.stat("processed")) == b"1"
        assert server.redis.hlen(server.keys.owners) == 0
