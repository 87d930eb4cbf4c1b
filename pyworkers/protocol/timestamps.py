"""Times as the programs on one Redis write them: seconds, milliseconds, text.

Pure; used by producers, workers and the master. pyworkers itself writes float epoch seconds, which every
Sidekiq from 6.4 to 8.1 reads correctly (protocol.md, Envelope).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from pyworkers.errors import BadArgumentError

# Sidekiq 8 writes integer milliseconds. 1e11 s is the year 5138, and 1e11 ms is March 1973.
_MILLISECONDS_FROM = 1e11
# go-workers writes failed_at with Go's layout "2006-01-02 15:04:05 MST", always in UTC.
_GO_LAYOUT = "%Y-%m-%d %H:%M:%S UTC"
# Scores beyond the year 9999 have no calendar date; Web pages of every Sidekiq fail on them.
LATEST = 253_402_300_799.0


def read(value: object) -> float | None:
    """Epoch seconds of a stored time; None if it is absent or invalid."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    return _from_text(value.strip()) if isinstance(value, str) else None


def rewritten(value: object) -> float | None:
    """Epoch seconds of a time that is stored as text or as whole seconds; None for any other value.

    Floats are seconds and large integers milliseconds to every reader (protocol.md, Envelope).
    """
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= _MILLISECONDS_FROM):
        return None
    return read(value)


def of_text(value: object) -> float | None:
    """Epoch seconds of a time that pyworkers has written as text; None for any other value."""
    try:
        found = float(value) if isinstance(value, str | bytes) else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: object) -> float | None:
    """A stored duration in seconds, as a number or as digits; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= LATEST else None


def _from_number(number: float) -> float | None:
    try:
        seconds = float(number)
    except OverflowError:
        return None
    if not math.isfinite(seconds):
        return None
    return seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds


def _from_text(text: str) -> float | None:
    try:
        return _from_number(float(text))
    except ValueError:
        pass
    try:
        return datetime.strptime(text, _GO_LAYOUT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def due(at: datetime | float) -> float:
    """The score of a moment. Raises BadArgumentError for naive datetimes and for invalid numbers.

    A datetime before 1970 is past as 0 is, and the last second of the year 9999 is one moment: as floats,
    its microseconds are the year 10000.
    """
    if isinstance(at, datetime):
        if at.tzinfo is None:
            hint = "use datetime.now(UTC) or .astimezone()"
            raise BadArgumentError(f"{at!r} has no time zone", hint=hint, field="at")
        return min(max(at.timestamp(), 0.0), LATEST)
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= LATEST:
        raise BadArgumentError(
            f"{at!r} is not a time: write epoch seconds up to the year 9999 or an aware datetime",
            hint="a delay is for enqueue_in, or delay=…" if isinstance(at, timedelta) else "",
            field="at",
        )
    return float(at)
