"""The programs of contrib/docs/failures.md run, and do what the page says."""

from __future__ import annotations

import re

from pyworkers import Client
from pyworkers.testing import fake
from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/failures.md").read_text(), re.DOTALL)
ENDS = {
    "offline": ("retry", "ConnectionRefusedError"),
    "declined": ("discard", "Declined"),
    "expired": ("dead", "CardExpired"),
    "bug": ("dead", "KeyError"),
}


def test_a_job_expires(serve_either: Serve, redis_url: str, namespace: str) -> None:
    with serve_either(PROGRAMS[2]) as server:
        client = Client(redis_url, namespace=namespace)
        client.enqueue("push", "notify", [7, "hello"], expires_in=600)
        server.push("push", job("late", "notify", 8, "late", expiry=1))
        server.wait_for_event("job.expired", jid="late")
        server.wait_for_output("to 7 hello\n")
        wait_for(lambda: server.settled("push"))
        assert "to 8" not in server.log_text()
    with fake() as queue:
        exec(PROGRAMS[2] + PROGRAMS[3], {"__name__": "page"})
    expiries = [found.data["expiry"] - found.data["created_at"] for found in queue.jobs]
    assert [round(expiry) for expiry in expiries] == [600, 4200, 5]


def test_each_failed_run_is_reported(serve_either: Serve) -> None:
    with serve_either(PROGRAMS[1]) as server:
        server.push("pay", job("j1", "charge", "offline"))
        server.wait_for_output("charge j1, attempt 0: ConnectionError, RETRY\n")
        server.wait_for_output("charge j1, attempt 1: ConnectionError, DEAD\n")
        server.push("pay", job("j2", "charge", "segfault"))
        server.wait_for_output("charge j2, attempt 0: crash, RETRY\n")


def test_the_class_of_the_exception_decides(serve_either: Serve) -> None:
    with serve_either(PROGRAMS[0]) as server:
        server.push("pay", *(job(how, "charge", how) for how in ENDS))
        found = {how: server.wait_for_event("job.failed", jid=how) for how in ENDS}
        wait_for(lambda: server.settled("pay"))
        assert {name: len(server.zset(name)) for name in ("retry", "dead")} == {"retry": 1, "dead": 2}
    ends = {how: (end["outcome"], end["error_class"].rpartition(".")[2]) for how, end in found.items()}
    assert ends == ENDS
