"""The mark and the entry of jobs that dead servers had."""

from __future__ import annotations

import hashlib

import pytest

from pyworkers.protocol import effects
from pyworkers.protocol.effects import DeleteField, StoreValue
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import CANCELLED, DONE, REQUEUE, Fate, Outcome
from pyworkers.protocol.suspects import SuspectEntry, deleting_entry, field_of

RAW = b'{"jid":"a"}'
GONE = DeleteField("suspects", hashlib.sha1(RAW).hexdigest())


@pytest.mark.parametrize(
    ("stored", "entry"),
    [
        (b"1 0", SuspectEntry(1, 0)),
        (b"12 3", SuspectEntry(12, 3)),
        (None, SuspectEntry()),
        (b"", SuspectEntry()),
        (b"1", SuspectEntry()),
        (b"-1 0", SuspectEntry()),
        (b"1 0\n", SuspectEntry()),
        (b"9" * 5000 + b" 1", SuspectEntry()),
    ],
)
def test_an_entry_is_two_numbers(stored: bytes | None, entry: SuspectEntry) -> None:
    assert SuspectEntry.parse(stored) == entry


@pytest.mark.parametrize("raw", [RAW, RAW + b"\t", RAW + b"\t\t"])
def test_the_field_of_a_job_does_not_depend_on_its_mark(raw: bytes) -> None:
    assert field_of(raw) == hashlib.sha1(RAW).hexdigest()


def test_other_blanks_belong_to_the_job() -> None:
    assert field_of(RAW + b" \t") == hashlib.sha1(RAW + b" ").hexdigest()


@pytest.mark.parametrize(
    "outcome", [DONE, CANCELLED, Outcome(Fate.RETRY, 1.0, b"{}", True), Outcome(Fate.SNOOZE, 1.0)]
)
def test_a_settled_job_has_no_entry_any_more(outcome: Outcome) -> None:
    found = deleting_entry(RAW + b"\t", outcome)
    assert found.effects == (GONE,)
    assert (found.fate, found.at, found.payload) == (outcome.fate, outcome.at, outcome.payload)


def test_a_job_that_is_given_back_keeps_its_entry() -> None:
    assert deleting_entry(RAW + b"\t", REQUEUE) is REQUEUE


def test_a_job_whose_own_effects_are_as_large_as_allowed_is_settled_nevertheless() -> None:
    own = StoreValue("k", bytes(effects.MAX_BYTES - 3), 60)
    assert deleting_entry(RAW, DONE.with_effects(own)).effects == (own, GONE)


def test_the_effect_deletes_from_the_key_of_the_entries() -> None:
    assert GONE.keys(Keys("app:")) == [Keys("app:").suspects]
