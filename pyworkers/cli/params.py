"""Parsers of command-line values of several commands; the error for an invalid value states the rule."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.envelope import check_value, read_integer
from pyworkers.protocol.keys import check_queue_name

_DECODER = simplejson.JSONDecoder(parse_int=read_integer)
_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Each unit once, the largest first: 1h30m.
_DURATION = re.compile("".join(f"(?:({NUMBER}){unit})?" for unit in _UNITS_S))


def reads(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback from a parser of text, or of each text; its ValueError becomes a usage error."""

    def callback(_context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        try:
            if isinstance(given, tuple):
                return tuple(map(parse, given))
            return None if given is None else parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def time_options(
    delay: str, at: str = "At this time: 2030-01-31T12:00:00Z."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --in and --at with these help texts; the command gets ``delay_s`` and ``at``, None by default."""
    within = click.option("--in", "delay_s", metavar="DURATION", callback=reads(parse_duration), help=delay)
    moment = click.option("--at", metavar="TIME", callback=reads(parse_time), help=at)
    return lambda command: within(moment(command))


def time_in(delay_s: float | None, at: float | None) -> float | None:
    """The epoch seconds that --in or --at name; None without both. Raises UsageError for both."""
    if delay_s is not None and at is not None:
        raise click.UsageError("--in and --at exclude each other.")
    return at if delay_s is None else time.time() + delay_s


def parse_duration(text: str) -> float:
    """Seconds of ``250ms``, ``10s``, ``5m``, ``2h``, ``1d``, ``1h30m`` or a number. Raises ValueError."""
    if re.fullmatch(NUMBER, text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(
            f"{text!r} is not a duration: write 250ms, 10s, 5m, 2h, 1d, 1h30m, or a number of seconds"
        )
    parts = zip(match.groups(), _UNITS_S.values(), strict=True)
    return sum(float(number) * unit_s for number, unit_s in parts if number)


def parse_time(text: str) -> float:
    """The epoch seconds of an ISO 8601 time with an offset, or given as a number. Raises ValueError."""
    if re.fullmatch(NUMBER, text):
        return timestamps.due(float(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        rule = "2030-01-31T12:00:00+01:00, or epoch seconds"
        raise ValueError(f"{text!r} is not a time: write it like {rule}") from error
    if moment.tzinfo is None:
        rule = "add Z for UTC or an offset, e.g. +01:00"
        raise ValueError(f"{text!r} has no time zone: {rule}")
    return timestamps.due(moment)


def parse_queue(text: str) -> str:
    """The name of a queue. Raises ValueError, with the rule, for an invalid name."""
    check_queue_name(text)
    return text


def parse_args(text: str) -> list[Any]:
    """The arguments of a job from a JSON list; ``-`` reads the list from stdin. Raises ValueError."""
    if text == "-":
        text = sys.stdin.buffer.read().decode()
    args = _decoded(text, "write lists like '[7, \"hello\"]'")
    if not isinstance(args, list):
        raise ValueError(f"must be a JSON list, e.g. [1, 2], not {text[:40]}")
    check_value(args, "args")
    return args


def parse_json(text: str) -> Any:
    """A JSON value. Raises ValueError."""
    return _decoded(text, "write texts with quotes, as '\"eu\"', and objects as '{\"tenant\": 7}'")


def _decoded(text: str, hint: str) -> Any:
    try:
        return _DECODER.decode(text)
    except simplejson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}; {hint}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def parse_retry(text: str) -> bool | int:
    """``true``, ``false`` or a number of retries. Raises ValueError."""
    if text in ("true", "false"):
        return text == "true"
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is not true, false or a number of retries")
    return int(text)
