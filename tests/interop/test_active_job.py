"""Recorded payloads of ActiveJob with Sidekiq's adapter: Python's values arrive, a retry changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import redis

from pyworkers.protocol.message import Message
from tests.helpers.replies import as_list
from tests.helpers.server_process import serving
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import HERE
from tests.interop.record_active_job import CALLS, CALLS_SINCE_7_1

RECORDED = {path.stem: json.loads(path.read_text()) for path in (HERE / "payloads").glob("ActiveJob-*.json")}
PAYLOADS = [
    pytest.param(name, found["call"], found["payload"].encode(), id=f"{name}-{number}")
    for name, recording in RECORDED.items()
    for number, found in enumerate(recording["payloads"])
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
PRECISE = Decimal("-12345678901234567890.123456789")
MONTH_S = 2_629_746
EXPECTED: tuple[list[Any], ...] = (
    [7, "ä", None, True, 2.5, [1]],
    [7, {"subject": "hello"}],
    [{"a": 1, "b": [{"c": "d"}]}],
    [{"a": {"b": 1}}],
    ["now", {"_aj": 1}],
    [datetime(2024, 7, 1, 12, 0, 0, 123456, PARIS)],
    [EPOCH],
    [datetime(2024, 2, 29, 16, 0, 15, 500_000, UTC)],
    [datetime(2024, 7, 1, 12, tzinfo=PARIS)],
    [date(2024, 2, 29)],
    [
        timedelta(minutes=90),
        timedelta(seconds=1.5),
        timedelta(days=2, seconds=MONTH_S),
        timedelta(hours=-1),
    ],
    [PRECISE],
    ["gid://shop/User/7", ["gid://shop/User/8"]],
    ["User", "Comparable"],
    [[[{"at": EPOCH}]], {"at": timedelta(minutes=5), "user": "gid://shop/User/7"}],
    [1],
    [range(1, 11), range(1, 10), range(3, 2)],
    [
        {"begin": date(2024, 1, 1), "end": date(2024, 1, 31), "exclude_end": False},
        {"begin": "a", "end": "c", "exclude_end": True},
        {"begin": 1, "end": None, "exclude_end": False},
    ],
)
BY_CALL = dict(zip(CALLS + CALLS_SINCE_7_1, EXPECTED, strict=True))

APP = """
@worker.job(queue="python", name="Note")
def run(*args, **keywords):
    note(current_message().jid, repr(args), repr(keywords))
    if os.environ.get("FAILING"):
        raise ValueError("python failed")
"""


def test_both_kinds_of_rails_are_recorded() -> None:
    """6.1 has no serializer of decimals and ranges, and no names of zones."""
    assert sorted(name.split(".")[0] for name in RECORDED) == ["ActiveJob-6", "ActiveJob-7"]
    calls = [found["call"] for found in RECORDED["ActiveJob-7.2.2.2"]["payloads"]]
    assert calls == list(BY_CALL)


@pytest.mark.parametrize(("name", "call", "raw"), PAYLOADS)
def test_the_arguments_are_pythons(name: str, call: str, raw: bytes) -> None:
    message = Message.parse(raw, "python", lambda: "made")
    expected = BY_CALL[call]
    if expected == [PRECISE] and name.startswith("ActiveJob-6"):
        expected = [str(PRECISE)]
    assert (message.job_class, message.args) == ("Note", expected)
    assert repr(type(message.args[0])) == repr(type(expected[0]))


def test_the_jobs_run_with_their_keywords(url: str, db: redis.Redis, tmp_path: Path) -> None:
    for recording in RECORDED.values():
        for found in recording["payloads"]:
            db.lpush("queue:python", found["payload"])
    with serving(tmp_path, url, "", APP) as server:
        notes = server.wait_for_notes(len(PAYLOADS), timeout=PATIENCE_S)
        wait_for(lambda: not server.inprogress("python"))
    assert sum(note[2:] == ["(7,)", "{'subject': 'hello'}"] for note in notes) == 2
    assert not db.exists("retry", "dead")


def test_a_retry_writes_the_arguments_back_as_they_came(url: str, db: redis.Redis, tmp_path: Path) -> None:
    before = {}
    for recording in RECORDED.values():
        for found in recording["payloads"]:
            raw = found["payload"].encode()
            before[json.loads(raw)["jid"]] = raw
            db.lpush("queue:python", raw)
    with serving(tmp_path, url, "", APP, FAILING="1"):
        wait_for(lambda: db.zcard("retry") == len(before), PATIENCE_S, "all have failed")
    for raw in as_list(db.zrange("retry", 0, -1)):
        after = json.loads(raw)
        text = before[after["jid"]].decode()
        end = max(text.rfind('}],"class":'), text.rfind('}],"jid":'))
        args = text[text.index('"args":[') : end + 2]
        assert args.encode() in raw
        assert (after["wrapped"], after["error_message"]) == ("Note", "python failed")
