"""What a node of a cluster has refused: which commands are sent again, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis
import pytest
from redis.exceptions import AskError, ExecAbortError, MovedError, ResponseError, TryAgainError

from pyworkers.store.transport import redirects
from pyworkers.store.transport.redirects import Redirects, refused

MOVED, ASK, AGAIN = MovedError("7 h:1"), AskError("7 h:2"), TryAgainError("TRYAGAIN keys")
OTHER = ResponseError("WRONGTYPE no list")
PACK: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def packed(*names: str) -> bytes:
    return b"".join(PACK((name, "key")) for name in names)


@pytest.mark.parametrize(
    ("replies", "again", "places"),
    [
        ([1, OTHER, 3], None, []),
        ([MOVED, MOVED, MOVED], ("A", "B", "C"), [0, 1, 2]),
        ([1, ASK, OTHER], ("B",), [1]),
        ([AGAIN, 2, ASK], ("A", "C"), [0, 2]),
    ],
)
def test_only_what_was_refused_is_sent_again(
    replies: list[Any], again: tuple[str, ...] | None, places: list[int]
) -> None:
    found = refused(packed("A", "B", "C"), replies)
    if again is None:
        assert found is None
        return
    assert found is not None
    assert (found.packed, found.places) == (packed(*again), places)
    found.put(["x"] * len(places), replies)
    assert [place for place, reply in enumerate(replies) if reply == "x"] == places


def test_the_second_time_the_places_are_those_of_the_exchange() -> None:
    found = refused(packed("A", "C"), [1, ASK], [0, 2])
    assert found is not None
    assert (found.packed, found.places) == (packed("C"), [2])


def test_a_transaction_is_sent_again_as_a_whole() -> None:
    commands = PACK(("MULTI",)) + packed("A", "B") + PACK(("EXEC",))
    found = refused(commands, [b"OK", b"QUEUED", ASK, ExecAbortError("discarded")])
    assert found is not None
    assert (found.packed, found.places) == (commands, [0, 1, 2, 3])


class Named:
    """A primary that notes which node another one has named."""

    def __init__(self) -> None:
        self.asked_first: list[str] = []

    def moved(self, error: Any) -> None:
        self.asked_first.append(error.host)


def test_the_pauses_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    primary: Any = Named()
    one = Redirects(primary)
    assert one.pause_s(MOVED) == 0
    pauses = [one.pause_s(error) for error in (MOVED, AGAIN, ASK, *[AGAIN] * 10)]
    assert 0 < pauses[0] < 0.01 < pauses[-1] <= 0.25
    assert primary.asked_first == ["h", "h"]
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        one.pause_s(OTHER)
    monkeypatch.setattr(redirects, "_PATIENCE_S", -1.0)
    with pytest.raises(TryAgainError):
        Redirects(primary).pause_s(AGAIN)
    # A URL of one Redis names no other one.
    with pytest.raises(MovedError):
        Redirects(None).pause_s(MOVED)
