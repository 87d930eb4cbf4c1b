"""The log of a server whose jobs and payloads are hostile: no control character, no forged or huge line."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import redis

from pyworkers.protocol.keys import Keys
from tests.conftest import missing
from tests.helpers.server_process import HEADER, ServerProcess
from tests.helpers.support import wait_for
from tests.helpers.terminal import terminal

CODE = """
@worker.process("q", retry=False)
def handle(message):
    raise ValueError("\\x1b[2J\\n2026-01-01T00:00:00.000000Z [info     ] forged" + "x" * 20_000_000)
"""
SMALL = """
@worker.process("q", retry=False)
def handle(message):
    before = "the line before"
    raise ValueError("\\x1b[2J\\n2020-01-01T00:00:00.000000Z [info     ] forged")
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


@pytest.fixture
def rich() -> Path:
    """The folder with the package rich, which is not in the environment of the tests (Makefile)."""
    folder = Path(sys.prefix) / "rich"
    return folder if folder.exists() else missing("rich is not installed: `make test` does it")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_shows_the_code_of_a_failed_job_in_colours(
    tmp_path: Path,
    rich: Path,
    redis_url: str,
    namespace: str,
    db: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    no_color: str,
) -> None:
    # The working directory is on the import path.
    shutil.copytree(rich, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", no_color)
    (tmp_path / "tasks.py").write_text(HEADER + SMALL)
    with terminal("run", "--app", "tasks:worker", "--url", redis_url, "--namespace", namespace) as shown:
        shown.wait_for("server.started")
        db.lpush(keys.queue("q"), '{"class": "any", "args": [], "jid": "a"}')
        start = shown.wait_for("job.failed")
        if not no_color:
            # rich shows the line before the failed one, in a box, Python does not.
            start_of_box = shown.wait_for("the line before", start)
            shown.wait_for("╯", start_of_box)
        # In the code, and in the message; the echo of Ctrl-C must not come into the middle of it.
        message = shown.wait_for("forged", shown.wait_for("forged", start))
        shown.wait_for("\n", message)
        shown.type("\x03")
        assert shown.wait() == 0
        text = shown.shown[start:].decode()
        colors = re.findall(r"\x1b\[[0-9;]*m", text)
        assert bool(colors) is not bool(no_color)
        assert r"\x1b[2J" in text
        lines = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n")
        assert [line for line in lines if not line.isprintable()] == []
        assert not [line for line in text.splitlines() if line.startswith("2020-")]
