"""Cron entries: their checks, by the rules of ``[[cron]]``, and their JSON form.

Pure; used by the application, the API and the master.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import simplejson

from pyworkers.config.options import describe
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import cron
from pyworkers.protocol.cron import CronEntry, Origin
from pyworkers.protocol.envelope import check_value, encode
from pyworkers.protocol.options import check_options

# Names in JSON → attributes. A field that the configuration file has, too, has the same name in both.
_FIELDS = {
    "name": "name",
    "schedule": "schedule",
    "queue": "queue",
    "class": "job_class",
    "args": "args",
    "timezone": "timezone",
    "misfire": "misfire",
    "grace": "grace_s",
    "retry": "retry",
    "options": "options",
}


def check_entry(entry: CronEntry) -> None:
    """Raise ValueError, with the field, the value and the rule, for an entry that cannot be fired."""
    for key, attribute, rule in _rules():
        try:
            rule(getattr(entry, attribute))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{key}: {error}") from error
    try:
        cron.check(entry)
        check_value(list(entry.args), "args")
        check_options({**_policy(entry), **entry.options})
        check_value(dict(entry.options), "options")
    except BadArgumentError as error:
        raise ValueError(error.message) from error


@cache
def _rules() -> tuple[tuple[str, str, Callable[[Any], None]], ...]:
    """The keys of ``[[cron]]`` that have a check, with their attributes: cached, for lists of a thousand."""
    return tuple(
        (option.path[-1], option.attribute, option.check)
        for option in describe()
        if option.path[0] == "cron" and option.check and option.attribute in CronEntry.__slots__
    )


def dump(entry: CronEntry) -> bytes:
    """The entry as JSON."""
    fields = {key: _plain(getattr(entry, name)) for key, name in _FIELDS.items() if key != "retry"}
    return encode(fields | _policy(entry)).encode()


def load(raw: bytes, origin: Origin) -> CronEntry:
    """The entry from the JSON of ``dump``. Raises ValueError for anything else, and for an invalid entry."""
    try:
        fields = simplejson.loads(raw)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(fields, dict) or not fields.keys() <= _FIELDS.keys():
        raise ValueError("not the fields of a cron entry")
    try:
        values: dict[str, Any] = {_FIELDS[key]: value for key, value in fields.items()}
        entry = CronEntry(**values | {"args": tuple(values.get("args", ())), "origin": origin})
        check_entry(entry)
    except TypeError as error:
        raise ValueError(f"not the fields of a cron entry: {error}") from error
    return entry


def _policy(entry: CronEntry) -> dict[str, Any]:
    # Left out, not null: an older server, which refuses unknown fields, can still read the entry.
    return {} if entry.retry is None else {"retry": entry.retry}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
