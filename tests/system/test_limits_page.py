"""The program of contrib/docs/limits.md runs, and does what the page says."""

from __future__ import annotations

import re

from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

[PROGRAM] = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/limits.md").read_text(), re.DOTALL)
HELD = """
@worker.middleware
def hold(message, call_next):
    note("start", message.jid)
    if message.job_class == "report":
        wait_for_file("go")
    return call_next(message)
"""


def test_each_tenant_has_two_slots(serve_either: Serve) -> None:
    with serve_either(PROGRAM + HELD) as server:
        server.push("reports", *(job(f"a{n}", "report", "acme", "May") for n in range(4)))
        server.wait_for_notes(2, "start")
        wait_for(lambda: len(server.zset("schedule")) == 2)
        # Others of the queue are not delayed.
        server.push("reports", *(job(f"b{n}", "report", "bmw", "May") for n in range(3)))
        server.wait_for_notes(4, "start")
        wait_for(lambda: len(server.zset("schedule")) == 3)
        server.let_go("go")
        server.wait_for_notes(7, "start")
        wait_for(lambda: server.settled("reports"))


def test_a_job_keeps_to_all_its_limits(serve_either: Serve) -> None:
    with serve_either(PROGRAM + HELD) as server:
        server.push("pay", *(job(f"p{n}", "charge", n) for n in range(25)))
        server.wait_for_notes(25, "start")
        wait_for(lambda: server.settled("pay"))
        assert server.zset("schedule") == server.zset("dead") == []
