"""The program of contrib/docs/ordered.md runs, and does what the page says."""

from __future__ import annotations

import re

from pyworkers import Client
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

[PROGRAM] = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/ordered.md").read_text(), re.DOTALL)


def test_the_jobs_run_in_their_order(serve_either: Serve, redis_url: str, namespace: str) -> None:
    with serve_either(PROGRAM) as server:
        client = Client(redis_url, namespace=namespace)
        client.enqueue_bulk("ledger", "Book", [[number] for number in range(20)])
        wait_for(lambda: server.settled("ledger"))
        server.wait_for_output(" 19\n")
        printed = re.findall(r"^(\d+) (\d+)$", server.log_text(), re.MULTILINE)
        assert [int(number) for _, number in printed] == list(range(20))
        assert len({fence for fence, _ in printed}) == 1
