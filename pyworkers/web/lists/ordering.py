"""Ordering: the order that the fields of a form give. It reads the clock for the new time of jobs.

Runs in the event loop of the dashboard.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from starlette.exceptions import HTTPException

from pyworkers.api.browse.actions import Action, Order
from pyworkers.api.browse.places import Place
from pyworkers.errors import BadArgumentError
from pyworkers.web.security import Form
from pyworkers.web.showing import cut, distance, visible

# Some thirty years: a time after them is a typing error.
_MOST_S = 10**9


def order_of(place: Place, verb: str, form: Form, delay: str) -> Order:
    """The order of a form. The new time of jobs is its field ``when``, or else in the seconds of ``delay``.

    Raises HTTPException (400), and BadArgumentError for a time that a person has typed.
    """
    try:
        action = Action(verb)
        return Order(place, action, _time_of(form, delay) if action is Action.RESCHEDULE else None)
    except BadArgumentError:
        raise
    except ValueError as error:
        raise HTTPException(400, "This action is unknown, or lacks its time.") from error


def _time_of(form: Form, delay: str) -> float:
    now = time.time()
    if when := form.get("when", "").strip():
        return moment_of(when, form.get("zone", ""), now)
    return now + min(max(0, int(delay)), _MOST_S)


def moment_of(when: str, zone: str, now: float) -> float:
    """The epoch seconds of a date and time, ``2026-11-23T09:30``, in a zone; in UTC without one.

    Raises BadArgumentError for any other text, and for a time that has passed.
    """
    shown = visible(cut(when, 40))
    try:
        found = datetime.fromisoformat(when)
        at = (found if found.tzinfo else found.replace(tzinfo=_zone(zone))).timestamp()
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
        raise BadArgumentError(f"{visible(cut(name, 40))} is no time zone that this server knows") from error
