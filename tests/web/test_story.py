"""The timeline of a job, and its tracebacks with the frames of libraries folded."""

from __future__ import annotations

import json

import pytest
import redis

from pyworkers.protocol.keys import Keys
from pyworkers.web.story import frames_of
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.web.visitor import Visitor

PRINTED = """Traceback (most recent call last):
  File "/srv/shop/mail.py", line 7, in send
    connect()
  File "/srv/venv/lib/python3.13/site-packages/smtp.py", line 2, in connect
    raise
    ^^^^^
  File "/usr/lib/python3.13/socket.py", line 9, in open
    [Previous line repeated 3 more times]
OSError: no route to /usr/lib/python3.13/ssl.py:1:in x"""
GROUP = """  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    |   File "/srv/shop/mail.py", line 7, in send
    |     connect()
    |   File "/srv/venv/lib/python3.13/site-packages/smtp.py", line 2, in connect
    |     raise
    | ValueError: one"""


def test_frames_of_libraries_are_apart() -> None:
    assert [(some.library, some.number) for some in frames_of(PRINTED)] == [
        (False, 1),
        (True, 2),
        (False, 0),
    ]
    assert [(some.library, some.text.count("\n")) for some in frames_of(GROUP)] == [
        (False, 3),
        (True, 1),
        (False, 0),
    ]


@pytest.mark.parametrize(
    ("lines", "libraries"),
    [
        ("/x/gems/redis/lib/a.rb:3:in `call'\n/srv/app.rb:2:in `run'", [True, False]),
        ("/x/site-packages/a.py:3:in f\n/x/site-packages/b.py:2:in g", [False]),
        ("/srv/a.py:3:in f\n<frozen importlib._bootstrap>:2:in g\n/srv/b.py:1:in h", [False, True, False]),
        ("", []),
        (" " * 100_000 + "\n" + ":1" * 50_000, [False]),
    ],
)
def test_frames_without_code(lines: str, libraries: list[bool]) -> None:
    found = frames_of(lines)
    assert [some.library for some in found] == libraries
    assert "\n".join(some.text for some in found) == lines


def test_the_runs_of_a_job_are_in_its_timeline(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    job = raw_job(
        "a", **{"class": "Send", "args": ["x"], "queue": "mail", "created_at": 1000, "enqueued_at": 1000}
    )
    error = ["OSError", "no <b>\nroute", PRINTED]
    runs = {"run:0": [1010.0, "web1:7"], "error:0": error, "run:1": [1100.0, "web2:8"]}
    fields = {name: json.dumps(value) for name, value in runs.items()}
    for name, value in {"state": "done", "finished_at": "1102.5", **fields}.items():
        db.hset(keys.job("a"), name, value)
    db.hset(keys.job("a"), mapping={"job": job})
    db.xadd(keys.log("a"), {"v": json.dumps({"at": 1014.5, "state": "retrying", "text": ""})})
    page = dashboard.get("jobs/a")
    text = page.text
    steps = (
        "Created and enqueued",
        "Run 1 failed after 4.5 s",
        "no <b>",
        "Run 2 after 2.5 s",
        "Done",
    )
    places = [text.find(step, text.index("Timeline")) for step in steps]
    assert -1 not in places and places == sorted(places)
    assert "by web1:7" in text and "by web2:8" in text and "2 frames of libraries" in text
    assert 'href="/metrics/Send"' in page.html


def test_a_job_without_a_history_has_the_times_of_its_envelope(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    times = {"created_at": 1000, "enqueued_at": 1050, "failed_at": 1010, "retried_at": 1060}
    db.zadd(keys.retry, {raw_job("a", retry_count=1, error_class="E", error_message="m", **times): 4e9})
    text = shown(dashboard, "jobs/a", "Next: ")
    steps = ("Created", "Failed for the first time", "Enqueued again", "Failed failure 2", "Next: retry")
    places = [text.find(step, text.index("Timeline")) for step in steps]
    assert -1 not in places and places == sorted(places)
    db.sadd(keys.queues, "q")
    db.rpush(keys.queue("q"), raw_job("b", args=[{"key": "x" * 100}]))
    text = shown(dashboard, "jobs/b", "Next: run as the first")
    assert text.count("x" * 100) == 1 and '"key": "' in text


def shown(dashboard: Visitor, path: str, text: str) -> str:
    """The page with this text. On a busy machine, the search for a job may not end in one request."""

    def found() -> str:
        page = dashboard.get(path).text
        return page if text in page else ""

    return wait_for(found)
