"""The programs of contrib/docs/frameworks.md run, and do what the page says."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.request import urlopen

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from pyworkers.testing import fake
from tests.helpers.support import ROOT
from tests.integrations.web import served

TEXT = (ROOT / "contrib/docs/frameworks.md").read_text()
PROGRAMS = dict(re.findall(r"^## (.*?)$.*?```python\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE))


def program(heading: str) -> dict[str, Any]:
    """The names of the program below a heading."""
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(PROGRAMS[heading], f"frameworks.md: {heading}", "exec"), names)
    return names


async def test_asyncio() -> None:
    names = program("asyncio")
    with fake() as queue:
        jid = await names["sign_up"](7)
        assert [job.jid for job in queue.jobs] == [jid]


def test_fastapi() -> None:
    with fake() as queue, served(program("FastAPI and Starlette")["app"]) as address:
        with urlopen(f"{address}/users/7", data=b"") as response:
            jid = json.load(response)["jid"]
        assert [(job.jid, job.args) for job in queue.jobs] == [(jid, [7])]


def test_flask(capsys: pytest.CaptureFixture[str]) -> None:
    names = program("Flask")
    with fake() as queue:
        jid = names["app"].test_client().post("/users/7").text
        assert [job.jid for job in queue.jobs] == [jid]
        queue.drain()
    assert "shop: mail to 7\n" in capsys.readouterr().out
    assert names["jobs"].worker.client.config.namespace == "shop:"


def test_sqlalchemy(capsys: pytest.CaptureFixture[str]) -> None:
    names = program("SQLAlchemy")
    engine = create_engine("sqlite://")
    with fake() as queue, Session(engine) as session:
        session.execute(text("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"))
        jid = names["sign_up"](session, "ann")
        assert [(job.jid, job.args) for job in queue.jobs] == [(jid, [1, "ann"])]
        queue.drain()
    engine.dispose()
    assert "welcome, ann\n" in capsys.readouterr().out
