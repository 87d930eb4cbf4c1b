"""Columns: what JSON and commands make of the declaration of a fact."""

from __future__ import annotations

from typing import NamedTuple

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.cli.output.listing import Form


class Part(NamedTuple):
    began: float


class Thing(NamedTuple):
    name: str
    part: Part
    error: str = ""
    result: object = None
    is_done: bool = False


def _age(part: Part, now: float) -> float:
    return now - part.began


PART: Table[Part] = Table("Part", Column("age_s", Kind.SECONDS, "Age", value=_age))
THING: Table[Thing] = Table(
    "Thing",
    Column("name", title="Name"),
    Column("error", title="Error", optional=True),
    Column("result", Kind.PARTS, schema={}, optional=lambda thing: thing.is_done),
    Column("part", Kind.RECORD, table=PART),
    *PART.within(lambda thing: thing.part),
)


def test_a_member_is_missing_while_it_is_empty_or_while_a_function_says_so() -> None:
    part = {"part": {"age_s": 2.5}, "age_s": 2.5}
    assert THING.as_dict(Thing("a", Part(7.5)), 10.0) == {"name": "a", **part}
    done = Thing("a", Part(7.5), "E", None, True)
    assert THING.as_dict(done, 10.0) == {"name": "a", "error": "E", "result": None, **part}
    assert THING.schema["required"] == ["name", "part", "age_s"]


def test_the_facts_of_a_record_are_those_that_are_known() -> None:
    facts = Form(10.0).facts(THING.shown(), Thing("a\n", Part(7.5)))
    assert list(facts) == ["name     a\\n", "age (s)  2.5"]
