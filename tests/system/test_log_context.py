"""Log context on a real server: the lines of a job have the values that it carries."""

from __future__ import annotations

import json
import re

from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

PROGRAM = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/log-context.md").read_text(), re.DOTALL)[0]
CODE = """
@worker.job(queue="MODE", mode="MODE", concurrency=2, retry_in=lambda failures, error, message: 0.1)
def run_MODE(how):
    if how == "crash":
        os._exit(9)
    if how == "raise" and not current_message().attempt:
        raise ValueError
    if how == "next":
        run_MODE.enqueue("done")
"""
MODES = ("process", "async", "thread")
CONTEXT = {"request_id": "r-1", "user": [7]}


def test_the_lines_of_a_job_have_its_values(serve: Serve) -> None:
    code = "".join(CODE.replace("MODE", mode) for mode in MODES)
    with serve(code, PYWORKERS_LOG__CARRY="request_id,user") as server:
        for mode in MODES:
            for how in ("next", "raise", "crash", "plain"):
                more = {} if how == "plain" else {"log_context": CONTEXT}
                server.push(mode, job(f"{how} {mode}", f"run_{mode}", how, **more))
        for mode in MODES:
            server.wait_for_event("job.done", jid=f"raise {mode}", attempt=1)
            server.wait_for_event("job.failed", jid=f"crash {mode}", outcome="dead")
            server.wait_for_event("job.done", count=4, queue=mode)
        wait_for(lambda: server.settled(*MODES))
        lines = [line for line in server.events() if line["event"].startswith("job.") and "jid" in line]
    plain = {f"plain {mode}" for mode in MODES}
    wrong = [line for line in lines if line.get("request_id") != (None if line["jid"] in plain else "r-1")]
    assert wrong == []
    assert not [line for line in lines if "user" in line]
    for mode in MODES:
        # Its own job, the two that were pushed, and the plain one.
        done = {line["jid"] for line in lines if line["event"] == "job.done" and line["queue"] == mode}
        assert len(done) == 4, mode
        assert {line["attempt"] for line in lines if line["jid"] == f"raise {mode}"} == {0, 1}, mode


def test_without_names_nothing_is_carried(serve: Serve) -> None:
    with serve(CODE.replace("MODE", "process")) as server:
        server.push("process", job("j1", "run_process", "done", log_context=CONTEXT))
        assert "request_id" not in server.wait_for_event("job.done", jid="j1")


def test_the_program_of_the_page(serve: Serve) -> None:
    with serve(PROGRAM, PYWORKERS_LOG__CARRY="request_id") as server:
        context = json.dumps({"request_id": "r-1"})
        server.push("default", f'{{"class":"ship","args":[7],"jid":"j1","log_context":{context}}}'.encode())
        assert server.wait_for_event("job.done", jid="j1")["request_id"] == "r-1"
        assert server.wait_for_event("job.done", job_class="mail")["request_id"] == "r-1"
