"""What a node of a cluster has refused: which commands are sent again, when, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import hiredis
import pytest
from redis.exceptions import AskError, ExecAbortError, MovedError, ResponseError, TryAgainError

from pyworkers.store.transport import redirects
from pyworkers.store.transport.redirects import Redirects, Repeat, resending

MOVED, ASK, AGAIN = MovedError("7 h:1"), AskError("7 h:2"), TryAgainError("TRYAGAIN keys")
OTHER = ResponseError("WRONGTYPE no list")
PACK: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def packed(*names: str) -> bytes:
    return b"".join(PACK((name, "key")) for name in names)


class Named:
    """A primary that notes which node another one has named."""

    def __init__(self) -> None:
        self.asked_first: list[str] = []

    def moved(self, error: Any) -> None:
        self.asked_first.append(error.host)

    def node_in(self, error: Any) -> tuple[str, int]:
        return error.host, error.port


def sent_again(packed: bytes, replies: list[Any], *answered: list[Any]) -> list[tuple[Any, bytes]]:
    """The nodes to which commands are sent again, one after the other, with these answers."""
    steps: Any = resending(Named(), packed, replies)  # type: ignore[arg-type]
    found = []
    with contextlib.suppress(StopIteration):
        again: Repeat = next(steps)
        for answers in answered:
            found.append((again.node, again.packed))
            assert len(answers) == again.number
            again = steps.send(answers)
        raise AssertionError("more is sent")
    assert len(found) == len(answered)
    return found


def asking(*names: str) -> bytes:
    return b"".join(PACK(("ASKING",)) + packed(name) for name in names)


def test_only_what_was_refused_is_sent_again() -> None:
    replies = [1, OTHER, 3]
    assert sent_again(packed("A", "B", "C"), replies) == []
    replies = [MOVED, OTHER, MOVED]
    assert sent_again(packed("A", "B", "C"), replies, ["x", AGAIN], ["y"]) == [
        (None, packed("A", "C")),
        (None, packed("C")),
    ]
    assert replies == ["x", OTHER, "y"]


def test_the_node_that_imports_the_slot_gets_what_was_refused_with_ask_and_nothing_else() -> None:
    """Another command might write a key that the other node has."""
    replies = [ASK, 2, AGAIN, ASK]
    assert sent_again(
        packed("A", "B", "C", "D"), replies, [b"OK", 1, b"OK", AGAIN], [3, ASK], [b"OK", 4]
    ) == [
        (("h", 2), asking("A", "D")),
        (None, packed("C", "D")),
        (("h", 2), asking("D")),
    ]
    assert replies == [1, 2, 3, 4]


def test_a_refused_asking_is_the_answer() -> None:
    replies: list[Any] = [ASK]
    sent_again(packed("A"), replies, [OTHER, MOVED])
    assert replies == [OTHER]


MULTI, EXEC = PACK(("MULTI",)), PACK(("EXEC",))
ABORTED = ExecAbortError("discarded")


def test_a_transaction_is_sent_again_as_a_whole() -> None:
    commands = MULTI + packed("A", "B") + EXEC
    replies = [b"OK", b"QUEUED", ASK, ABORTED]
    done = [b"OK", b"QUEUED", b"QUEUED", [1, 2]]
    assert sent_again(commands, replies, [b"OK", AGAIN, b"QUEUED", ABORTED], done) == [(None, commands)] * 2
    assert replies == done


PUSH = MULTI + packed("SADD", "LPUSH") + EXEC


@pytest.mark.parametrize(
    ("refusals", "answered", "sent"),
    [
        # Each key is on another node.
        ([b"QUEUED", ASK, ABORTED], [[1], [b"OK", 2]], [(None, "SADD"), (("h", 2), "LPUSH")]),
        ([ASK, b"QUEUED", ABORTED], [[b"OK", 1], [2]], [(("h", 2), "SADD"), (None, "LPUSH")]),
        # The queue is empty, so it is on no node.
        (
            [b"QUEUED", b"QUEUED", AGAIN],
            [[1], [ASK], [b"OK", 2]],
            [(None, "SADD"), (None, "LPUSH"), (("h", 2), "LPUSH")],
        ),
    ],
)
def test_the_push_into_one_queue_is_divided(
    refusals: list[Any], answered: list[list[Any]], sent: list[tuple[Any, str]]
) -> None:
    replies = [b"OK", *refusals]
    assert sent_again(PUSH, replies, *answered) == [
        (node, asking(name) if node else packed(name)) for node, name in sent
    ]
    assert replies == [b"OK", 1, 2, [1, 2]]


def test_no_job_is_pushed_into_a_queue_that_is_not_listed() -> None:
    replies = [b"OK", b"QUEUED", ASK, ABORTED]
    assert sent_again(PUSH, replies, [OTHER]) == [(None, packed("SADD"))]
    assert replies[1:] == [OTHER, ASK, ABORTED]


def test_the_pauses_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    primary: Any = Named()
    one = Redirects(primary)
    assert one.pause_s(MOVED) == 0
    pauses = [one.pause_s(error) for error in (MOVED, AGAIN, ASK, *[AGAIN] * 10)]
    assert 0 < pauses[0] < 0.01 < pauses[-1] <= 0.25
    assert primary.asked_first == ["h", "h"]
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        one.pause_s(OTHER)
    monkeypatch.setattr(redirects, "_MOVING_PATIENCE_S", -1.0)
    with pytest.raises(TryAgainError):
        Redirects(primary).pause_s(AGAIN)
    # A URL of one Redis names no other one.
    with pytest.raises(MovedError):
        Redirects(None).pause_s(MOVED)
