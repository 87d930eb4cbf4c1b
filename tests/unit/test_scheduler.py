"""When schedulers poll, and what they make of due members."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pyworkers.keys import Keys
from pyworkers.server.scheduler import next_poll, promotions
from pyworkers.store.schedule import Promotion

NOW = 1_793_534_400.0


def polls(interval_s: float, rank: int, masters: int, until: float = 60.0) -> list[float]:
    """The polls of one master in the first minute, in seconds."""
    found, moment = [], NOW
    while (moment := next_poll(moment, interval_s, rank, masters)) < NOW + until:
        found.append(moment - NOW)
    return found


@pytest.mark.parametrize(("masters", "expected"), [(1, 1.0), (2, 1.0), (3, 1.5), (8, 4.0), (100, 50.0)])
def test_each_of_many_masters_polls_less_often(masters: int, expected: float) -> None:
    for rank in range(masters):
        times = polls(1.0, rank, masters, until=4 * expected)
        assert {round(later - earlier, 3) for earlier, later in pairwise(times)} == {expected}


@pytest.mark.parametrize("masters", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("interval_s", [1.0, 0.25, 7.0])
def test_together_they_poll_in_every_interval_also_when_one_of_them_is_gone(
    masters: int, interval_s: float
) -> None:
    everyone = {rank: polls(interval_s, rank, masters) for rank in range(masters)}
    for gone in {-1, *range(masters if masters > 1 else 0)}:
        together = sorted(moment for rank, times in everyone.items() if rank != gone for moment in times)
        assert max(later - earlier for earlier, later in pairwise([0.0, *together])) <= interval_s + 1e-6


def test_the_next_poll_is_never_now() -> None:
    for moment in (NOW, NOW + 0.999999, NOW + 1 / 3):
        assert moment < next_poll(moment, 1.0, 0, 1) <= moment + 1.0


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (
            b'{"queue":"mail","args":[1.50],"at":7,"x":1e3}',
            Promotion(
                b'{"queue":"mail","args":[1.50],"at":7,"x":1e3}',
                b'{"queue":"mail","args":[1.50],"x":1e3,"enqueued_at":1793534400.0}',
                "mail",
            ),
        ),
        (b'{"queue":"app:mail"}', Promotion(b'{"queue":"app:mail"}',
            b'{"queue":"mail","enqueued_at":1793534400.0}', "mail")),
        (b'{"enqueued_at":1}', Promotion(b'{"enqueued_at":1}',
            b'{"enqueued_at":1793534400.0,"queue":"default"}', "default")),
        (b'{"queue":null}', Promotion(b'{"queue":null}',
            b'{"queue":"default","enqueued_at":1793534400.0}', "default")),
        (b"", Promotion(b"")),
        (b"no job", Promotion(b"no job")),
        (b"[1]", Promotion(b"[1]")),
        (b'{"queue":"a"} {}', Promotion(b'{"queue":"a"} {}')),
        (b'{"queue":"\xff"}', Promotion(b'{"queue":"\xff"}')),
    ],
)  # fmt: skip
def test_what_becomes_of_a_due_member(member: bytes, expected: Promotion) -> None:
    assert promotions([member], NOW, Keys("app:")) == [expected]


@pytest.mark.parametrize(
    "member", [b'{"queue":5}', b'{"queue":["a"]}', b'{"queue":"a b"}', b'{"queue":"\\ud800"}']
)
def test_a_member_with_an_impossible_queue_is_buried_with_the_reason(member: bytes) -> None:
    [promotion] = promotions([member], NOW, Keys("app:"))
    assert (promotion.member, promotion.queue) == (member, None)
    assert promotion.payload.startswith(member[:-1] + b',"error_message":"')
    assert promotion.payload.endswith(b',"error_class":"BadMessageError","failed_at":1793534400.0}')
