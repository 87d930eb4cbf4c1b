"""The programs of contrib/docs/unique.md run, and do what the page says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

UNIQUE, USE, LIMITED, FILL, TESTING = re.findall(
    r"```python\n(.*?)```", (ROOT / "contrib/docs/unique.md").read_text(), re.DOTALL
)


@pytest.fixture
def names(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The variables of a program that enqueues there."""
    monkeypatch.setenv("PYWORKERS_REDIS__URL", redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", namespace)
    return {"__name__": "page"}


def test_the_same_job_runs_once(serve_either: Serve, names: dict[str, Any]) -> None:
    exec(UNIQUE, names)
    exec(USE, names)
    with serve_either(UNIQUE) as server:
        server.wait_for_event("job.done", 3)
        done = server.events("job.done")
        wait_for(lambda: server.settled("reports", "search"))
        assert sorted(event["job_class"] for event in done) == ["build_report", "build_report", "index"]
        assert names["first"] in {event["jid"] for event in done}
        for words in ("report of 7", "report of 8", "version 2 of 1"):
            assert server.log_text().count(words) == 1
        assert "version 1 of 1" not in server.log_text()
        assert names["build_report"].enqueue(7) != names["first"]
        server.wait_for_event("job.done", 4)


def test_a_full_queue_refuses(names: dict[str, Any]) -> None:
    exec(LIMITED, names)
    exec(FILL, names)


def test_the_test_support_knows_both(names: dict[str, Any]) -> None:
    exec(UNIQUE, names)
    exec(TESTING, names)
