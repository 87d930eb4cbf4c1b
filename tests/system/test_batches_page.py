"""The programs of contrib/docs/batches.md run, and do what the page says."""

from __future__ import annotations

import re

from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/batches.md").read_text(), re.DOTALL)
REPORT = """
@worker.job(queue="imports")
def make_report(*urls):
    note("made", report(urls).status().kind)
"""


def test_a_batch_and_a_canvas(serve: Serve) -> None:
    with serve("\n".join([*PROGRAMS, REPORT])) as server:
        server.push("imports", job("first", "start", 7, ["a", "b"]), job("second", "make_report", "x", "xyz"))
        wait_for(lambda: re.search(r"^batch (\S+) has 2 jobs$", server.log_text(), re.MULTILINE))
        [batch] = re.findall(r"^batch (\S+) has 2 jobs$", server.log_text(), re.MULTILINE)
        server.wait_for_output(f"import 7 is done: batch {batch}\n")
        server.wait_for_output("row a\n")
        server.wait_for_output("row b\n")
        server.wait_for_notes(1, "made", "chain")
        server.wait_for_output("sizes [1, 3]\n")
        wait_for(lambda: server.settled("imports", "pages"))
