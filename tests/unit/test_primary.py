"""Which of two answers about the primary is followed."""

from __future__ import annotations

import pytest

from pyworkers.store.transport import primary
from pyworkers.store.transport.primary import NamedPrimary, Primary, Watch
from pyworkers.store.transport.sentinel import Sentinels

PLACES = [("s", 1), ("s", 2)]
FORMER, LATER = ("h", 1), ("h", 2)


@pytest.fixture
def watch() -> Watch:
    return Watch(Primary(Sentinels(PLACES, "main", {}), {}))


def test_the_later_failover_is_followed(watch: Watch) -> None:
    assert watch.agreed(NamedPrimary(7, FORMER), PLACES[0]) == FORMER
    assert watch.agreed(NamedPrimary(8, LATER), PLACES[1]) == LATER
    # A sentinel that is cut off together with the former primary.
    assert watch.agreed(NamedPrimary(7, FORMER), PLACES[0]) == LATER


def test_sentinels_that_were_set_up_again_are_believed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    watch.agreed(NamedPrimary(8, LATER), PLACES[0])
    monkeypatch.setattr(primary, "_TRUSTED_S", -1.0)
    assert watch.agreed(NamedPrimary(1, FORMER), PLACES[0]) == FORMER


def test_the_place_that_answered_is_asked_first(watch: Watch) -> None:
    watch.agreed(NamedPrimary(7, FORMER), PLACES[1])
    assert watch.places == [PLACES[1], PLACES[0]]
    watch.agreed(NamedPrimary(7, FORMER, (("n", 1), ("n", 2))), ("n", 2))
    assert watch.places == [("n", 2), ("n", 1), *PLACES]
