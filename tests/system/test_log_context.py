"""Log context on a real server: the lines of a job have the values that it carries."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

PROGRAM = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/log-context.md").read_text(), re.DOTALL)[0]
CODE = """
@worker.job(queue="q", mode="MODE", concurrency=2, retry_in=lambda failures, error, message: 0.1)
def run(how):
    if how == "crash":
        os._exit(9)
    if how == "raise" and not current_message().attempt:
        raise ValueError
    if how == "next":
        run.enqueue("done")
"""
CONTEXT = {"request_id": "r-1", "user": [7]}


@pytest.mark.parametrize("mode", ["process", "async", "thread"])
def test_the_lines_of_a_job_have_its_values(serve: Serve, mode: str) -> None:
    code = CODE.replace("MODE", mode)
    with serve(code, PYWORKERS_LOG__CARRY="request_id,user") as server:
        for how in ("next", "raise", "crash", "plain"):
            more = {} if how == "plain" else {"log_context": CONTEXT}
            server.push("q", job(how, "run", how, **more))
        server.wait_for_event("job.done", jid="raise", attempt=1)
        server.wait_for_event("job.failed", jid="crash", outcome="dead")
        server.wait_for_event("job.done", count=4)
        wait_for(lambda: server.settled("q"))
        lines = [line for line in server.events() if line["event"].startswith("job.") and "jid" in line]
    wrong = [line for line in lines if line.get("request_id") != (None if line["jid"] == "plain" else "r-1")]
    assert wrong == []
    assert not [line for line in lines if "user" in line]
    # Its own job, the two that were pushed, and the plain one.
    assert len({line["jid"] for line in lines if line["event"] == "job.done"}) == 4
    assert {line["attempt"] for line in lines if line["jid"] == "raise"} == {0, 1}


def test_without_names_nothing_is_carried(serve: Serve) -> None:
    with serve(CODE.replace("MODE", "process")) as server:
        server.push("q", job("j1", "run", "done", log_context=CONTEXT))
        assert "request_id" not in server.wait_for_event("job.done", jid="j1")


def test_the_program_of_the_page(serve: Serve) -> None:
    with serve(PROGRAM, PYWORKERS_LOG__CARRY="request_id") as server:
        context = json.dumps({"request_id": "r-1"})
        server.push("default", f'{{"class":"ship","args":[7],"jid":"j1","log_context":{context}}}'.encode())
        assert server.wait_for_event("job.done", jid="j1")["request_id"] == "r-1"
        assert server.wait_for_event("job.done", job_class="mail")["request_id"] == "r-1"
