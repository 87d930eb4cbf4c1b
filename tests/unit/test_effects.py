"""Effects: values that survive the pipe, and bytes that are none."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.protocol import effects
from pyworkers.protocol.effects import CountOut, DeleteField, DeleteKey, Effect, FreeSlot, StoreValue, Unlock
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Fate, Outcome, Report
from pyworkers.store import scripts
from pyworkers.worker.execution import MAX_NOTE_BYTES, Channel, Execution

ALL: list[tuple[Effect, bytes]] = [
    (Unlock("lock:a", "me"), b"\0\0\0\0\x06lock:a\0\0\0\x02me"),
    (FreeSlot("slots:ä", ""), b"\1\0\0\0\x08slots:\xc3\xa4\0\0\0\0"),
    (
        CountOut("batch:7", "pending", "q", b"{}\xff"),
        b"\2\0\0\0\x07batch:7\0\0\0\x07pending\0\0\0\x01q\0\0\0\x03{}\xff",
    ),
    (StoreValue("result:7", b"1", 60), b"\3\0\0\0\x08result:7\0\0\0\x011\0\0\0\x0260"),
    (DeleteKey("x"), b"\4\0\0\0\x01x"),
    (DeleteField("x", "f"), b"\5\0\0\0\x01x\0\0\0\x01f"),
]
NUMBERS = [
    "Unlock",
    "FreeSlot",
    "CountOut",
    "StoreValue",
    "DeleteKey",
    "DeleteField",
    "Push",
    "CountMember",
    "",  # AddMember of a development version
    "StoreFields",
    "Announce",
    "PassSlot",
    "HoldHead",
    "PauseQueue",
    "StoreIteration",
    "DeleteIteration",
    "NoteStart",
    "NoteRun",
    "AppendLog",
    "EndLog",
    "KeepFinished",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
some = st.lists(
    st.builds(Unlock, texts, texts)
    | st.builds(FreeSlot, texts, texts)
    | st.builds(CountOut, texts, texts, st.just("q"), st.binary(max_size=9))
    | st.builds(StoreValue, texts, st.binary(max_size=9), st.integers(1, 10**9))
    | st.builds(DeleteKey, texts)
    | st.builds(DeleteField, texts, texts),
    max_size=4,
).map(tuple)


@pytest.mark.parametrize(("effect", "packed"), ALL)
def test_an_effect_is_its_number_and_its_fields_with_their_lengths(effect: Effect, packed: bytes) -> None:
    assert effects.pack([effect]) == packed
    assert effects.unpack(packed * 2) == (effect, effect)


def test_each_effect_has_its_own_number_which_stays() -> None:
    assert {kind.NUMBER: kind.__name__ for kind in get_args(Effect)} == {
        n: name for n, name in enumerate(NUMBERS) if name
    }, "a new effect takes the next number, at the end of NUMBERS"


def test_each_effect_can_be_imported_by_an_application() -> None:
    missing = {kind.__name__ for kind in get_args(Effect)} - set(effects.__all__)
    assert not missing, "put it into __all__ of pyworkers/protocol/effects/__init__.py"


def test_each_effect_has_its_function_in_the_script() -> None:
    script = scripts.load("exchange").text
    rows = re.findall(r"^ +([A-Z]\w+) = \{ (\d+), (\d+), ", script, re.MULTILINE)
    examples = {"str": "x", "int": 1, "bytes": b"x"}
    made: list[Any] = [
        kind(*(examples[str(part.type)] for part in fields(kind))) for kind in get_args(Effect)
    ]
    assert sorted(rows) == sorted(
        (effects.name_of(one), str(len(one.keys(Keys()))), str(len(effects.arguments(one)))) for one in made
    ), "NAME = { number of keys, number of arguments, function } in store/scripts/shared/effects.lua"


@given(some, st.binary(max_size=20), st.booleans())
def test_a_report_carries_the_effects_of_its_outcome(
    carried: tuple[Effect, ...], payload: bytes, retiring: bool
) -> None:
    for fate in (Fate.DONE, Fate.RETRY):
        report = Report(Outcome(fate, 5.0, payload, effects=carried), 12, retiring)
        found = Report.unpack(report.pack())
        assert found == (report if carried or retiring or fate is Fate.RETRY else Report(DONE, 12))


@pytest.mark.parametrize("outcome", [DONE, Outcome(Fate.RETRY, 5.0, b"payload", failed=True)])
def test_an_outcome_without_effects_takes_no_byte_more(outcome: Outcome) -> None:
    assert len(Report(outcome).pack()) == struct.calcsize("!BBdIH") + len(outcome.payload)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x06",
        b"\xff\0\0\0\0",
        b"\4",
        b"\4\0\0",
        b"\4\0\0\0\x02x",
        b"\4\xff\xff\xff\xffx",
        b"\0\0\0\0\x01a",
        b"\4\0\0\0\x01\xff",
        b"\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\3\0\0\0\x01k\0\0\0\0\0\0\0\x01-",
        b"\3\0\0\0\x01k\0\0\0\0\0\0\0\x010",
    ],
)
def test_bytes_that_are_no_effects_are_refused(garbage: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        effects.unpack(garbage)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (effects.unpack, Report.unpack):
        try:
            read(data)
        except (ValueError, struct.error):
            continue


@pytest.mark.parametrize("length", [0, 3])
def test_a_report_whose_effects_are_cut_off_is_refused(length: int) -> None:
    data = Report(Outcome(Fate.DONE, effects=(DeleteKey("x"),))).pack()
    with pytest.raises((ValueError, struct.error)):
        Report.unpack(data[: struct.calcsize("!BBdIH") + length])


def test_effects_are_added_to_an_outcome() -> None:
    first, second = DeleteKey("a"), DeleteKey("b")
    outcome = DONE.with_effects(first).with_effects(second)
    assert (outcome.fate, outcome.effects, DONE.effects) == (Fate.DONE, (first, second), ())
    assert DONE.with_effects() is DONE
    assert (DONE.size, outcome.size, Outcome(Fate.RETRY, payload=b"abc", effects=(first,)).size) == (0, 2, 4)
    big = StoreValue("k", bytes(effects.MAX_BYTES // 2), 1)
    with pytest.raises(ValueError, match="larger than 16777216 bytes"):
        DONE.with_effects(big).with_effects(big)


def test_invalid_effects_are_refused_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="cannot be a queue"):
        CountOut("batch:7", "pending", "a b", b"{}")
    with pytest.raises(ValueError, match="a TTL of 0 s is not from 1"):
        StoreValue("result:7", b"1", 0)


def test_the_keys_of_effects_stand_below_our_own_name() -> None:
    keys = Keys("app:")
    assert [effect.keys(keys) for effect, _ in ALL] == [
        ["app:pyworkers:lock:a"],
        ["app:pyworkers:slots:ä"],
        ["app:pyworkers:batch:7", "app:queue:q", "app:queues"],
        ["app:pyworkers:result:7"],
        ["app:pyworkers:x"],
        ["app:pyworkers:x"],
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: StoreValue("result", b"1", timedelta(hours=1).total_seconds()),  # type: ignore[arg-type]
        lambda: StoreValue("result", "1", 60),  # type: ignore[arg-type]
        lambda: Unlock("lock", b"\xff"),  # type: ignore[arg-type]
        lambda: FreeSlot("slots", 7),  # type: ignore[arg-type]
        lambda: DeleteKey(b"\xff"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_another_type_is_refused_where_it_is_given(make: Callable[[], Effect]) -> None:
    """Else the master could not read the report, and would kill the worker of a job that has run."""
    with pytest.raises(ValueError, match="is of type"):
        make()


def test_of_two_notes_the_last_value_of_a_key_counts() -> None:
    first, second, other = StoreValue("k", b"1", 60), StoreValue("k", b"2", 9), StoreValue("l", b"1", 60)
    unlock = Unlock("lock", "me")
    assert effects.merge((first, unlock), ()) == (first, unlock)
    assert effects.merge((first, unlock), (other,)) == (first, unlock, other)
    assert effects.merge((first, unlock), (second,)) == (unlock, second)
    assert effects.merge((first, unlock), (unlock,)) == (first, unlock)


def test_a_running_job_notes_only_what_may_be_applied_twice() -> None:
    sent: list[tuple[int, tuple[Effect, ...]]] = []
    run = Execution(
        Message("j", "q", "Any", [], {}, b""),
        7,
        Channel(lambda number, noted: sent.append((number, tuple(noted)))),
    )
    run.note(Unlock("lock", "me"), DeleteKey("k"))
    with pytest.raises(ValueError, match="must be repeatable"):
        run.note(CountOut("batch:7", "pending", "q", b"{}"))
    with pytest.raises(ValueError, match="a note of 1048579 bytes; the limit is 1048576"):
        run.note(StoreValue("k", bytes(MAX_NOTE_BYTES), 60))
    assert sent == [(7, (Unlock("lock", "me"), DeleteKey("k")))]
