"""Declarations of limits, their keys, and the ask of a job."""

from __future__ import annotations

from datetime import date
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
import simplejson

from pyworkers import Worker
from pyworkers.errors import BadArgumentError, DeclarationError
from pyworkers.ipc.frames import fits
from pyworkers.protocol.limits import (
    Ask,
    Limit,
    QueueLimit,
    Want,
    ask_for,
    check_limits,
    parse_rate,
    period_of,
    window_of,
)
from pyworkers.protocol.message import Message


@pytest.mark.parametrize("number", [0, -1, True, float("nan"), 1.5, "10", None, 1_000_001])
@pytest.mark.parametrize("option", ["rate", "concurrency"])
def test_a_number_is_whole_and_from_one(option: str, number: Any) -> None:
    with pytest.raises(DeclarationError):
        Worker().limit("stripe", **{option: number})


@pytest.mark.parametrize("per", [0, -1, True, float("nan"), float("inf"), "1", None, 0.0001, 1e9, 10**400])
def test_a_period_is_positive_and_finite(per: Any) -> None:
    with pytest.raises(DeclarationError, match="per must be in seconds"):
        Worker().limit("stripe", rate=10, per=per)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", "é", "x" * 65, None, 7, b"a"])
def test_a_name_is_short_and_plain(name: Any) -> None:
    with pytest.raises(DeclarationError, match="not named"):
        Worker().limit(name, rate=10)


def test_a_limit_has_one_kind() -> None:
    with pytest.raises(DeclarationError, match="either rate or concurrency"):
        Worker().limit("stripe", rate=10, concurrency=3)


def test_by_is_a_plain_function() -> None:
    async def by(tenant: int) -> int:
        return tenant

    for wrong in ("tenant", by, 7):
        with pytest.raises(DeclarationError, match="by"):
            Worker().limit("tenant", concurrency=1, by=wrong)  # type: ignore[arg-type]


def test_a_name_stands_for_one_limit() -> None:
    worker = Worker()
    assert worker.limit("a", rate=10) == worker.limit("a", rate=10)
    others: Any
    for others in (
        {"rate": 9},
        {"rate": 10, "per": 2},
        {"concurrency": 10},
        {"rate": 10, "by": lambda *_: 1},
    ):
        with pytest.raises(DeclarationError, match="declared twice"):
            worker.limit("a", **others)


def test_limits_of_a_job_are_a_list_of_limits_without_repetition() -> None:
    worker = Worker()
    stripe = worker.limit("stripe", rate=10)
    for wrong in (stripe, ["stripe"], [stripe, stripe]):
        with pytest.raises(DeclarationError, match="limits"):
            worker.job(limits=wrong)(lambda: None)  # type: ignore[arg-type]
    assert check_limits([stripe], "a job") == (stripe,)


def test_the_key_of_a_limit_has_the_value_of_by() -> None:
    fair = Limit("tenant", concurrency=2, by=lambda tenant, *_: tenant)
    assert fair.want(["acme", 7]) == Want("tenant:acme", 2, 0.0)
    assert fair.want([7]) == Want("tenant:7", 2, 0.0)
    assert Limit("stripe", rate=10).want(["acme"]) == Want("stripe", 10, window_of(1.0))
    for value in ("x" * 1_000_000, "a\nb", "\ud800"):
        key = fair.want([value]).key
        assert (len(key), key.isprintable()) == (len("tenant:") + 64, True)


def test_the_key_of_an_encrypted_job_hashes_the_value_of_by() -> None:
    limits = [Limit("tenant", concurrency=2, by=lambda tenant, *_: tenant), Limit("erp", concurrency=3)]
    message = Message.parse(b'{"class":"c","args":["acme"],"encrypted":true}', "q", str)
    keys = [want.key for want in ask_for(message, limits, "h").wants]
    assert keys == [f"tenant:{sha256(b'acme').hexdigest()}", "erp"]


def test_a_value_of_by_has_the_same_text_in_each_process() -> None:
    for value in (None, 1.5, float("nan"), [1, {"a": 2}], UUID(int=7), date(2026, 1, 2), "at 0xff"):
        assert Limit("t", concurrency=1, by=lambda *_, value=value: value).want([]).key == f"t:{value}"
    for wrong in (object(), [object()], lambda: 1, (n for n in "ab")):
        with pytest.raises(BadArgumentError, match=r"the limit .t.: by returned .* differs in each process"):
            Limit("t", concurrency=1, by=lambda *_, wrong=wrong: wrong).want([])


def test_a_window_is_a_little_longer_than_declared() -> None:
    assert [window_of(per) for per in (0.01, 1.0, 60.0)] == pytest.approx([0.011, 1.004, 60.004])
    assert [period_of(window_of(per)) for per in (0.001, 0.1, 1.0, 60.0)] == [0.001, 0.1, 1.0, 60.0]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", (10, 1.0)),
        ("600/m", (600, 60.0)),
        ("5/30s", (5, 30.0)),
        ("1/2h", (1, 7200.0)),
        ("1/d", (1, 86_400.0)),
    ],
)
def test_the_rate_of_a_queue_has_a_period(text: str, rate: tuple[int, float]) -> None:
    assert parse_rate(text) == rate
    assert QueueLimit.of(text, 3) == QueueLimit(*rate, 3)


@pytest.mark.parametrize(
    "text", ["", "10", "0/s", "-1/s", "1.5/s", "nan/s", "10/0s", "10/w", "10 / s", "9999999/s", "1/999d"]
)
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_rate(text)


def test_a_queue_may_have_no_limits() -> None:
    assert QueueLimit.of(None, None) is None
    assert QueueLimit.of(None, 3) == QueueLimit(max_running=3)


def test_an_ask_is_read_as_it_was_written() -> None:
    wants = (Want("stripe", 10, 1.1), Want("tenant:é", 2, 0.0))
    for ask in (Ask("jid\0é", "holder", wants), Ask("", "h", wants, {"jid": "a", "queue": "q"}, True)):
        assert Ask.unpack(ask.pack()) == ask


def test_an_ask_fits_into_one_frame() -> None:
    limits = [Limit(f"{n}" * 64, concurrency=1, by=lambda text: text) for n in range(8)]
    for text in ("\U0001f600" * 1000, "é" * 21, "x" * 128, "\ud800" * 20):
        raw = simplejson.dumps({"class": "c", "jid": text, "args": [text]}).encode()
        message = Message.parse(raw, "q" * 128, str)
        assert fits(ask_for(message, limits, "f" * 24).pack())


@pytest.mark.parametrize("data", [b"", b"[]", b'["a","b",[["k"]],{},0]', b"{}", b"1", b"\xff"])
def test_other_bytes_are_no_ask(data: bytes) -> None:
    with pytest.raises(ValueError):
        Ask.unpack(data)


def test_the_fields_that_schedule_needs_are_added_to_an_ask() -> None:
    limits = [Limit("stripe", rate=10)]
    plain = Message.parse(b'{"class":"c","jid":"j","queue":"q","args":[]}', "q", str)
    bare = Message.parse(b'{"class":"c","args":[]}', "q", lambda: "made")
    assert ask_for(plain, limits, "h").changes == {}
    assert ask_for(bare, limits, "h").changes == {"jid": "made", "queue": "q"}
