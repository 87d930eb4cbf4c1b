"""The program of contrib/docs/results.md runs, and does what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from pyworkers.cli import main
from tests.helpers.server_process import Serve
from tests.helpers.support import PATIENCE_S, ROOT

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/results.md").read_text(), re.DOTALL)
ASKING = """
import asyncio
from tasks import copy, export, show, worker
"""
SHOWING = """
jid = copy.enqueue("a/b")
worker.result(jid)
show(jid)
show("another")
"""


def test_the_program_of_the_page(serve_either: Serve, tmp_path: Path, redis_url: str, namespace: str) -> None:
    jobs, asking, logging, showing = PROGRAMS
    asking = asking.replace("timeout=10", f"timeout={PATIENCE_S}")
    with serve_either(f"{jobs}\n{showing}\n{logging}") as server:
        found = subprocess.run(
            [sys.executable, "-c", f"{ASKING}{asking}\nask()\nasyncio.run(ask_in_a_loop())\n{SHOWING}"],
            cwd=tmp_path,
            env={
                "PYTHONPATH": f"{tmp_path}:{ROOT}",
                "PYWORKERS_REDIS__URL": redis_url,
                "PYWORKERS_REDIS__NAMESPACE": namespace,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stderr == ""
        state, *lines = found.stdout.splitlines()
        assert state in ("waiting", "running", "done")
        assert lines == [
            "{'pages': 3}",
            "Progress(done=3, total=3, text='page 3')",
            "failed ValueError no pages",
            "done ['a/b'] None",
            lines[-1],
        ]
        assert re.fullmatch(r"0 [\d.]+ \S+:\d+   ", lines[-1])
        [refused] = server.events("job.failed", job_class="refuse")
        [done] = server.events("job.done", job_class="export")
        options = ["--url", redis_url, "--namespace", namespace]
        run = CliRunner().invoke
        assert run(main, ["result", done["jid"], *options]).output == '{"pages":3}\n'
        shown = run(main, ["result", done["jid"], "--json", *options])
        assert json.loads(shown.output) == {"state": "done", "result": {"pages": 3}}
        status = run(main, ["status", done["jid"], *options])
        assert status.output.splitlines()[:3] == [
            "state     done", "queue     exports", "progress  3 of 3  page 3",
        ]  # fmt: skip
        status = run(main, ["status", refused["jid"], "--json", *options])
        assert json.loads(status.output)["error"] == "ValueError: no pages"
        failed = run(main, ["result", refused["jid"], *options])
        assert (failed.exit_code, failed.stderr) == (
            1, f"Error: the job {refused['jid']} is failed: ValueError: no pages\n",
        )  # fmt: skip
        failed = run(main, ["result", refused["jid"], "--json", *options])
        assert json.loads(failed.output) == {
            "state": "failed", "error_class": "ValueError", "error": "no pages",
        }  # fmt: skip
        unknown = run(main, ["status", "other", *options])
        assert (unknown.exit_code, unknown.output) == (1, "state     unknown\n")
        assert run(main, ["result", "other", *options]).exit_code == 1
