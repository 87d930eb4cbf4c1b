"""Showing: texts, times and numbers as people read them, safe for any bytes that Redis holds.

Pure; used by the templates as filters. Nothing here reads Redis.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from markupsafe import Markup, escape

from pyworkers.text import TIME_UNITS_S, escaped, length_of

CUT = 200
"""The characters of a text that a page shows; the rest is on the page of the whole."""
# The characters of a text that a list expands to; the rest is on the page of the job.
_MOST_WHOLE = 2000
# Such a text has room in each row of a list, as on a telephone.
_SHORT = 24
# Control characters, marks that change the direction of the text after them, separators, surrogates.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_ABSURD = 10**20
_UNKNOWN = "\N{EN DASH}"


def visible(text: str) -> str:
    """The text with each invisible character as ``\\u001b``, and each byte that is not UTF-8 as ``\\xff``.

    Of a text of spaces alone, so is each of them.
    """
    if text.isspace():
        return "".join(map(escaped, text))
    return _INVISIBLE.sub(lambda found: escaped(found[0]), text)


def cut(text: str, most: int = CUT) -> str:
    """The beginning of a text of more than ``most`` characters."""
    return text if len(text) <= most else text[:most] + "…"


def shown(value: object, most: int = CUT) -> Markup:
    """A text of a job, isolated from the direction of the text around it, and cut; 0 for ``most``: whole."""
    text = str(value)
    return Markup("<bdi>{}</bdi>").format(visible(cut(text, most) if most else text))


def lines(text: str, most: int = 0) -> Markup:
    """A text of several lines, each isolated; cut as by ``shown``."""
    kept = cut(text, most) if most else text
    return Markup("\n").join(Markup("<bdi>{}</bdi>").format(visible(line)) for line in kept.split("\n"))


def expandable(text: str) -> Markup:
    """A text in one line: its first line, which a click expands to the whole; a short one as it is.

    The line is cut by the style sheet. ⏎ replaces the lines that follow.
    """
    first, *others = text.strip().splitlines() or [""]
    if not first:
        # A cell without anything is left out on a telephone.
        return Markup("")
    line = shown(first, CUT)
    if not any(map(str.strip, others)) and len(first) <= _SHORT:
        return line
    more = Markup(' <span class="note">⏎</span>') if others else ""
    form = '<details class="whole"><summary>{}{}</summary><pre tabindex="0">{}</pre></details>'
    return Markup(form).format(line, more, lines(text, _MOST_WHOLE))


def moment(seconds: float | None, now: float) -> Markup:
    """A time in epoch seconds: how far away it is, with the exact time as title; empty for None."""
    if seconds is None:
        return Markup("")
    written = utc(seconds)
    if not written:
        return escape(f"{seconds:g}")
    form = '<time datetime="{}" title="{}">{}</time>'
    return Markup(form).format(written, _words_of(written), distance(seconds - now))


def exact(seconds: float) -> Markup:
    """The exact time in UTC, which the script shows in the zone of the viewer, with UTC after it."""
    written = utc(seconds)
    if not written:
        return escape(f"{seconds:g}")
    return Markup('<time datetime="{}" data-exact>{}</time>').format(written, _words_of(written))


def both(seconds: float | None, now: float) -> Markup:
    """How far away a time is, and the exact time; empty for None."""
    if seconds is None or not utc(seconds):
        return moment(seconds, now)
    return Markup('{} <span class="note exact">{}</span>').format(moment(seconds, now), exact(seconds))


def clock(seconds: float, now: float) -> Markup:
    """The time of day in UTC, as ``14:05``, of another day as ``Sat 14:05``; the script shows it in the zone
    of the viewer.
    """
    written = utc(seconds)
    day = "" if written[:10] == utc(now)[:10] else f"{datetime.fromtimestamp(seconds, UTC):%a} "
    return Markup('<time datetime="{}" data-clock>{}</time>').format(written, day + written[11:16])


def _words_of(written: str) -> str:
    return f"{written[:10]} {written[11:19]} UTC"


def utc(seconds: float) -> str:
    """The time in ISO 8601, in UTC; empty for one outside of the calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def distance(seconds: float) -> str:
    """How far away a moment is: ``in 3 min``, ``2 h ago``, ``now``."""
    words = duration(abs(seconds))
    if words == "0 s":
        return "now"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def duration(seconds: float) -> str:
    """A length of time in its largest whole unit; empty for an infinite one."""
    if not math.isfinite(seconds):
        return ""
    for unit, size, least in TIME_UNITS_S:
        if seconds >= least:
            return f"{int(seconds // size):,} {unit}"
    return "0 s"


def exact_duration(seconds: float) -> str:
    """A length of time without a loss: ``25 h 0.5 s``; one that is infinite as ``inf s``."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    units = [(f" {unit}", size) for unit, size, least in TIME_UNITS_S if seconds >= least]
    return " ".join(length_of(seconds, units or [(" s", 1)]))


def number(value: float | None) -> str:
    """A count with thousands separated by commas, as the command line prints it; a dash for an unknown one.

    One with more digits than any counter of Redis is shown as ``1.234e+400``.
    """
    if value is None:
        return _UNKNOWN
    if isinstance(value, int) and abs(value) >= _ABSURD:
        digits = str(abs(value))
        return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:4]}e+{len(digits) - 1}"
    return f"{value:,}"


def compact(value: int) -> str:
    """A count in at most five characters: ``9,999``, ``12k``, ``3.4M``."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 1000)):
        if value >= max(size, 10_000):
            return f"{value / size:.1f}{unit}" if value < 10 * size else f"{number(value // size)}{unit}"
    return number(value)


def counted(count: int, noun: str) -> str:
    """A number of things: ``1 job``, ``0 jobs``."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def milliseconds(ms: float | None) -> str:
    """A duration with three digits: ``45 ms``, ``1.1 s``, ``5.58 min``; a dash for an unknown one."""
    if ms is None:
        return _UNKNOWN
    for unit, factor in (("ms", 1), ("s", 1000), ("min", 60_000)):
        if ms < {"ms": 1000, "s": 60_000}.get(unit, math.inf):
            return f"{ms / factor:,.3g}\u202f{unit}"
    return ""


def size(bytes_: float | None) -> str:
    """A number of bytes in the unit that suits it; a dash for an unknown one."""
    if bytes_ is None:
        return _UNKNOWN
    for unit in ("B", "KB", "MB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g}\u202f{unit}" if bytes_ >= 1 else f"{bytes_:g}\u202f{unit}"
        bytes_ /= 1000
    return f"{bytes_:,.3g}\u202fGB"
