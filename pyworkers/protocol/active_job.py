"""ActiveJob's arguments as Python values: symbols, keywords, times and others that Rails marks in the JSON.

Pure; used for jobs in ActiveJob's wrapper, and imported at the first of them. It writes nothing: a retry
keeps the stored text. The markers are from Rails 6.0 to 8.1 (activejob: arguments.rb, serializers/*.rb).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from pyworkers.protocol.message import Keywords

_GLOBAL_ID = "_aj_globalid"
_SERIALIZED = "_aj_serialized"
_KEYWORDS = "_aj_ruby2_keywords"
# Markers without a meaning in Python, e.g. the list of keys that were symbols.
_KEY_MARKERS = frozenset({"_aj_symbol_keys", "_aj_hash_with_indifferent_access", _KEYWORDS})


def arguments(stored: list[Any]) -> list[Any]:
    """The arguments with Python's values in them. Hashes of unknown serializers stay as they are.

    Raises RecursionError for arguments nested too deep.
    """
    values = [_value(item) for item in stored]
    if stored and isinstance(stored[-1], dict) and _KEYWORDS in stored[-1]:
        values[-1] = Keywords(values[-1])
    return values


def _value(item: Any) -> Any:
    # Loops, not comprehensions, which take a second frame for each level before Python 3.12.
    if isinstance(item, list):
        return list(map(_value, item))
    if not isinstance(item, dict):
        return item
    if _SERIALIZED in item:
        return _deserialized(item)
    if item.keys() == {_GLOBAL_ID}:
        return item[_GLOBAL_ID]
    found = {}
    for key, value in item.items():
        if key not in _KEY_MARKERS:
            found[key] = _value(value)
    return found


def _deserialized(item: dict[str, Any]) -> Any:
    read = _READERS.get(str(item[_SERIALIZED]).removeprefix("ActiveJob::Serializers::"))
    try:
        return read(item) if read else item
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return item  # an application's serializer of the same name, or a value out of Python's range


def _text(item: Mapping[str, Any]) -> str:
    value = item["value"]
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _time(item: Mapping[str, Any]) -> datetime:
    """A time, cut to microseconds; Ruby has nanoseconds."""
    moment = datetime.fromisoformat(_text(item))
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no offset")
    return moment


def _time_with_zone(item: Mapping[str, Any]) -> datetime:
    """A time in its zone; up to Rails 7.0 the zone has no name, and the time only an offset."""
    moment, name = _time(item), item.get("time_zone")
    try:
        return moment.astimezone(ZoneInfo(name)) if name else moment
    except (KeyError, OSError, ValueError):
        return moment  # this machine has no data for the zone


def _duration(item: Mapping[str, Any]) -> timedelta:
    """A duration; Rails counts a month as 2,629,746 seconds, a year as 31,556,952."""
    return timedelta(seconds=float(item["value"]))


def _range(item: Mapping[str, Any]) -> range | dict[str, Any]:
    """A range of integers as a range; any other range, which Python lacks, as a dict."""
    first, last, exclude_end = _value(item["begin"]), _value(item["end"]), bool(item["exclude_end"])
    if type(first) is type(last) is int:
        return range(first, last + (not exclude_end))
    return {"begin": first, "end": last, "exclude_end": exclude_end}


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "SymbolSerializer": _text,
    "ModuleSerializer": _text,
    "DateSerializer": lambda item: date.fromisoformat(_text(item)),
    "DateTimeSerializer": _time,
    "TimeSerializer": _time,
    "TimeWithZoneSerializer": _time_with_zone,
    "DurationSerializer": _duration,
    "BigDecimalSerializer": lambda item: Decimal(_text(item)),
    "RangeSerializer": _range,
}
