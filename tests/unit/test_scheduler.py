"""What schedulers make of due members."""

from __future__ import annotations

import pytest

from pyworkers.protocol.keys import Keys
from pyworkers.server.scheduler import moves
from pyworkers.store.sets import Move

NOW = 1_793_534_400.0


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (
            b'{"queue":"mail","args":[1.50],"at":7,"x":1e3}',
            Move(
                b'{"queue":"mail","args":[1.50],"at":7,"x":1e3}',
                b'{"queue":"mail","args":[1.50],"x":1e3,"enqueued_at":1793534400.0}',
                "mail",
            ),
        ),
        (b'{"queue":"app:mail"}', Move(b'{"queue":"app:mail"}',
            b'{"queue":"mail","enqueued_at":1793534400.0}', "mail")),
        (b'{"enqueued_at":1}', Move(b'{"enqueued_at":1}',
            b'{"enqueued_at":1793534400.0,"queue":"default"}', "default")),
        (b'{"queue":null}', Move(b'{"queue":null}',
            b'{"queue":"default","enqueued_at":1793534400.0}', "default")),
        (b"", Move(b"")),
        (b"no job", Move(b"no job")),
        (b"[1]", Move(b"[1]")),
        (b'{"queue":"a"} {}', Move(b'{"queue":"a"} {}')),
        (b'{"queue":"\xff"}', Move(b'{"queue":"\xff"}')),
    ],
)  # fmt: skip
def test_what_becomes_of_a_due_member(member: bytes, expected: Move) -> None:
    assert moves([member], NOW, Keys("app:")) == [expected]


@pytest.mark.parametrize(
    "member", [b'{"queue":5}', b'{"queue":["a"]}', b'{"queue":"a b"}', b'{"queue":"\\ud800"}']
)
def test_a_member_with_an_impossible_queue_is_buried_with_the_reason(member: bytes) -> None:
    [promotion] = moves([member], NOW, Keys("app:"))
    assert (promotion.member, promotion.queue) == (member, None)
    assert promotion.payload.startswith(member[:-1] + b',"error_message":"')
    assert promotion.payload.endswith(b',"error_class":"BadMessageError","failed_at":1793534400.0}')
