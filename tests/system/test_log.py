"""The log of a server whose jobs and payloads are hostile: no control character, no forged or huge line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.server_process import ServerProcess
from tests.helpers.support import wait_for

CODE = """
@worker.process("q", retry=False)
def handle(message):
    raise ValueError("\\x1b[2J\\n2026-01-01T00:00:00.000000Z [info     ] forged" + "x" * 20_000_000)
"""
HOSTILE = "Job\x1b]0;title\x07\u202e\n2026-01-01T00:00:00.000000Z [info     ] forged"


@pytest.mark.parametrize("format", ["console", "json"])
def test_a_job_neither_steers_the_terminal_nor_forges_or_floods_the_log(
    tmp_path: Path, one_redis_url: str, namespace: str, format: str
) -> None:
    server = ServerProcess(tmp_path, one_redis_url, namespace, "--log-format", format)
    server.write_app(CODE)
    try:
        server.start(ready=False)
        wait_for(lambda: "server.started" in server.log_text(), message="it runs")
        server.push(
            "q",
            {"class": HOSTILE, "args": [], "jid": HOSTILE},
            {"class": "x" * 1_000_000, "args": [], "jid": "y" * 1_000_000},
            {"class": 7, "args": [], "jid": HOSTILE},
        )
        wait_for(lambda: server.log_text().count("job.failed") == 3, message="the jobs have failed")
        assert server.stop() == 0
        text = server.log_text()
    finally:
        server.kill()
    assert (r"\u001b[2J" if format == "json" else r"\x1b[2J") in text
    assert all(line.isprintable() for line in text.split("\n"))
    assert not [line for line in text.split("\n") if line.startswith("2026-01-01")]
    assert max(map(len, text.split("\n"))) < 100_000
