"""Asking: the place, the filter and the part of it that an address names, and the order that a form gives.

Pure, but for the clock that the new time of jobs is read from.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, Self
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException

from pyworkers.api.browse.actions import JobAction, Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import Place
from pyworkers.errors import BadArgumentError
from pyworkers.web import names
from pyworkers.web.names import number_in
from pyworkers.web.security import Form
from pyworkers.web.showing import cut, distance, exact_duration, visible

_TEXTS = {
    "class": "job_class",
    "jid": "jid",
    "queue": "queue",
    "tag": "tag",
    "batch": "batch",
    "error": "error",
    "error_like": "error_like",
    "text": "text",
}
_AGES = {"older": "older_s", "younger": "younger_s"}
_FIELDS = {**_TEXTS, **_AGES}
AGES = ((300, "5 minutes"), (3600, "1 hour"), (86_400, "1 day"), (604_800, "7 days"))
"""The ages to choose from, in seconds."""
_AGE_WORDS: dict[float, str] = dict(AGES)
MOST_CHARACTERS = 500
"""The longest text of a condition."""
MOST_SELECTED = 500
"""The jobs that one change may name."""
_QUEUE = "queue:"
_MOST_DIGITS = 11
# What ``_spelled`` writes, without a sign or an exponent.
_AGE = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?", re.ASCII)
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}")
# Some thirty years: a time after them is a typing error.
_MOST_S = 10**9


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for. Without a filter from ``first`` on, the place of a job, from 1; with one from
    ``cursor`` on.
    """

    wanted: Filter
    first: int = 1
    cursor: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a query asks for; invalid values are ignored."""
        texts = {
            field: typed(query.get(name, "").strip()[:MOST_CHARACTERS]) for name, field in _TEXTS.items()
        }
        ages = {field: query.get(name, "") for name, field in _AGES.items()}
        known = {field: float(age_s) for field, age_s in ages.items() if _AGE.fullmatch(age_s)}
        first = number_in(query.get("first", ""), _MOST_DIGITS) or 1
        return cls(Filter.of({**texts, **known}), first, query.get("from", ""))

    def query(self, **others: str) -> dict[str, str]:
        """The filter as a query, without the part of it, and ``others``."""
        return query_of(self.wanted) | {name: visible(value) for name, value in others.items()}


def filter_of(given: Mapping[str, Any]) -> Filter:
    """The filter in the parameters of a request to the JSON."""
    values = {field: given[name] for name, field in _FIELDS.items()}
    return Filter.of({field: value for field, value in values.items() if value is not None})


def query_of(wanted: Filter) -> dict[str, str]:
    """A filter as the query of an address, and as the values of the fields of a form."""
    values = {name: getattr(wanted, field) for name, field in _FIELDS.items()}
    return {
        name: _spelled(value) if isinstance(value, float) else visible(value)
        for name, value in values.items()
        if value not in ("", None)
    }


def _spelled(age_s: float) -> str:
    """Seconds without an exponent, which ``Asked.of`` reads as the same number."""
    return f"{Decimal(repr(float(age_s))).normalize():f}"


def age_of(age_s: float) -> str:
    """An age in words: ``1 hour``. It is exact, because an action on all that match reads it."""
    return _AGE_WORDS.get(age_s) or exact_duration(age_s)


def ages_of(age_s: float | None) -> list[tuple[str, str, bool]]:
    """The ages to choose from, and the one that is chosen now, in order: value, words, is it chosen."""
    known = _AGE_WORDS if age_s is None else {**_AGE_WORDS, age_s: age_of(age_s)}
    return [(_spelled(age), known[age], age == age_s) for age in sorted(known)]


def encoded(place: Place) -> str:
    """A place as a value of a query, which holds any name of a queue."""
    return f"{_QUEUE}{names.encode(place.queue)}" if place.queue else place.word


def decoded(word: str) -> Place | None:
    """The inverse of ``encoded``; None for any other text."""
    return Place.read(names.decode(word))


def typed(text: str) -> str:
    """A trimmed text from a field, with invisible characters as pages show them: ``\\u001b``."""
    return _ESCAPED.sub(lambda found: _unescaped(found[0]), text.strip())


def _unescaped(escaped: str) -> str:
    char = chr(int(escaped[2:], 16))
    # A text with a backslash before any other character is meant as it is.
    return char if visible(char) == escaped else escaped


def order_of(place: Place, verb: str, form: Form, delay: str) -> Order:
    """The order of a form. The new time of jobs is its field ``when``, or else in the seconds of ``delay``.

    Raises HTTPException (400), and BadArgumentError for a time that a person has typed.
    """
    try:
        action = JobAction(verb)
        return Order(place, action, _time_of(form, delay) if action is JobAction.RESCHEDULE else None)
    except BadArgumentError:
        raise
    except ValueError as error:
        raise HTTPException(400, "This action is unknown, or lacks its time.") from error


def _time_of(form: Form, delay: str) -> float:
    now = time.time()
    at = moment_of(form, now)
    return now + min(max(0, int(delay)), _MOST_S) if at is None else at


def moment_of(form: Form, now: float) -> float | None:
    """The epoch seconds of the date and time, ``2026-11-23T09:30``, and the zone of a form; None without.

    Raises BadArgumentError for any other text, and for a time that has passed.
    """
    when = form.get("when", "").strip()
    if not when:
        return None
    shown = visible(cut(when, 40))
    try:
        found = datetime.fromisoformat(when)
        at = (found if found.tzinfo else found.replace(tzinfo=_zone(form.get("zone", "")))).timestamp()
    except (ValueError, OverflowError) as error:
        if isinstance(error, BadArgumentError):
            raise
        raise BadArgumentError(f"{shown} is not a date and time such as 2026-11-23T09:30") from error
    if at <= now:
        raise BadArgumentError(f"{shown} has passed: it was {distance(at - now)}")
    if at - now > _MOST_S:
        raise BadArgumentError(f"{shown} is too far away: {distance(at - now)}")
    return at


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadArgumentError(
            f"{visible(cut(name, 40))} is not a time zone that this server knows"
        ) from error
