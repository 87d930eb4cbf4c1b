"""Every error that a first day meets names its fix."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from redis import exceptions

from pyworkers import Worker
from pyworkers.cli import main
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.envelope import check_value
from pyworkers.store.transport.connections import translate


class Color(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int


async def load() -> None: ...


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (date(2030, 1, 31), "value.isoformat()"),
        (datetime(2030, 1, 31), "value.isoformat()"),
        (timedelta(1), "value.total_seconds()"),
        (UUID(int=7), "str(value)"),
        (Decimal("1.5"), "str(value)"),
        (Fraction(1, 3), "str(value)"),
        (Path("a"), "str(value)"),
        (Color.RED, "value.value"),
        ({1}, "list(value)"),
        ({}.keys(), "list(value)"),
        (b"a", "value.decode()"),
        (Point(1), "dataclasses.asdict(value)"),
        (load, "call it"),
        (object(), "JSON carries None, bool, int, float, str, list and dict"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_argument_that_json_does_not_carry(value: Any, fix: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        check_value([value], "args")
    assert caught.value.message == f"args[0] is of type {type(value).__name__}, which JSON does not carry"
    assert fix in caught.value.hint


def test_a_declared_option_that_json_does_not_carry() -> None:
    with pytest.raises(TypeError, match=r"(?s)extra\['day'\] is of type date.*isoformat"):

        @Worker().job(extra={"day": date(2030, 1, 31)})
        def job() -> None: ...


@pytest.mark.parametrize(
    ("keyword", "fix"),
    [
        ("subjet", "; did you mean subject?"),
        ("retry", "; retry is an option: send_mail.options(retry=…).enqueue(…)"),
        ("timeot", "; timeout is an option: send_mail.options(timeout=…).enqueue(…)"),
        ("queue", "; queue is an option: send_mail.options(queue=…).enqueue(…)"),
        ("delay", "; use send_mail.enqueue_in(seconds, …)"),
        ("at", "; use send_mail.enqueue_at(when, …)"),
        ("countdown", "; use send_mail.enqueue_in(seconds, …)"),
        ("eta", "; use send_mail.enqueue_at(when, …)"),
        ("kwargs", "; use send_mail.enqueue(…), with the arguments as in a call of the function"),
        ("max_retries", "; retry is an option: send_mail.options(retry=…).enqueue(…)"),
        ("task_id", "; jid is an option: send_mail.options(jid=…).enqueue(…)"),
        ("zzz", ""),
    ],
)
def test_a_keyword_that_the_job_does_not_have(keyword: str, fix: str) -> None:
    @Worker().job
    def send_mail(user_id: int, subject: str = "") -> None: ...

    calls: tuple[Any, ...] = (send_mail.enqueue, send_mail.call)
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call(7, **{keyword: 3})
        text = f"send_mail(): got an unexpected keyword argument '{keyword}'{fix}"
        assert str(caught.value) == text


@pytest.mark.parametrize(
    ("reply", "fix"),
    [
        ("NOAUTH Authentication required.", "Set the password: [redis] username and password"),
        ("WRONGPASS invalid username-password pair", "Check user name and password: [redis]"),
        ("DENIED Redis is running in protected mode", "Set a password in Redis (requirepass)"),
        ("ERR DB index is out of range", "Name a database that exists at the end of redis.url"),
        ("ERR unknown command 'SSCAN'", "If it is a sentinel: redis+sentinel://HOST:PORT,HOST:PORT/NAME"),
    ],
)
def test_an_address_or_a_login_that_is_refused(reply: str, fix: str) -> None:
    assert fix in str(translate(exceptions.ResponseError(reply)))


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("enqueu", "'enqueue'"),
        ("dead retri", "'retry'"),
        ("cron lst", "'list'"),
        ("dead list --jsn", "'--json'"),
        ("processes --jsno", "'--json'"),
    ],
)
def test_a_misspelt_word_of_the_command_line(words: str, fix: str) -> None:
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 2
    assert f"Did you mean {fix}" in result.stderr or f"one of: {fix}" in result.stderr
