"""Limits over all servers: how many jobs may start in a time, or run at once, and how a worker asks for it.

Pure; declared by the application, asked for by the worker process, granted by Redis (ask.lua). A job has its
limits by its handler alone: its envelope does not name them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simplejson

from pyworkers.errors import DeclarationError

By = Callable[..., object]
"""Called with the arguments of a job; jobs with equal results share a limit."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAME_RULE = "1 to 64 letters, digits, '_', '-' and '.'"
_LONGEST_S = 366 * 86_400.0
_MOST = 1_000_000
# A longer value is replaced by its digest, because it is a part of the name of a key.
_LONGEST_VALUE = 128
# A job starts a little later than Redis lets it: another one, at the end of the window, may have been faster.
# So the window is longer than declared by a tenth, but by no more than this.
_MARGIN_S = 0.1


class Want(NamedTuple):
    """What one job asks of one limit. ``window_s`` is that of a rate, 0 for jobs at once."""

    key: str
    """Name and value of ``by``: ``stripe``, or ``tenant:7``."""
    most: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Limit:
    """A declared limit: ``rate`` starts in any ``per`` seconds, or ``concurrency`` jobs at once."""

    name: str
    rate: int | None = None
    per: float = 1.0
    concurrency: int | None = None
    by: By | None = None

    def __post_init__(self) -> None:
        """Raise DeclarationError for invalid values."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DeclarationError(f"a limit is not named {self.name!r}", hint=f"use {_NAME_RULE}")
        if (self.rate is None) == (self.concurrency is None):
            raise DeclarationError(
                f"the limit {self.name!r} needs either rate or concurrency",
                hint="for both, declare two limits, and name both in limits=[…]",
            )
        for option in ("rate", "concurrency"):
            if (value := getattr(self, option)) is not None and not _is_count(value):
                raise DeclarationError(
                    f"the limit {self.name!r}: {option} is a whole number from 1 to {_MOST}, not {value!r}",
                    hint="one start in 2 s: rate=1, per=2" if option == "rate" else "",
                )
        if not _is_period(self.per):
            raise DeclarationError(
                f"the limit {self.name!r}: per is in seconds, from 0.001 to a year, not {self.per!r}"
            )
        if self.by is not None and not callable(self.by):
            raise DeclarationError(f"the limit {self.name!r}: by is a function of the job's arguments")

    @property
    def window_s(self) -> float:
        """The length of the window in which ``rate`` starts are granted; 0 without a rate."""
        return 0.0 if self.rate is None else window_of(self.per)

    def want(self, args: Sequence[Any]) -> Want:
        """What a job with these arguments asks for. Raises what ``by`` raises."""
        key = self.name if self.by is None else f"{self.name}:{_text(self.by(*args))}"
        return Want(key, self.rate or self.concurrency or 0, self.window_s)


@dataclass(frozen=True, slots=True)
class Ask:
    """A job that may start only if all its limits allow it. ``payload`` goes to ``schedule`` if they do not.

    ``holder`` names this run of the job; the master puts the identity of its server in front.
    """

    jid: str
    holder: str
    wants: tuple[Want, ...]
    payload: bytes = b""
    """Empty: the bytes as they are."""

    def pack(self) -> bytes:
        """The facts as JSON, NUL, and the payload."""
        return (
            simplejson.dumps([self.jid, self.holder, [list(want) for want in self.wants]]).encode()
            + b"\0"
            + self.payload
        )

    @classmethod
    def unpack(cls, data: bytes) -> Ask:
        """The inverse of ``pack``. Raises ValueError for other bytes."""
        head, nul, payload = data.partition(b"\0")
        jid, holder, wants = simplejson.loads(head)
        if not nul or not wants:
            raise ValueError("an ask is cut off, or wants nothing")
        return cls(jid, holder, tuple(Want(*want) for want in wants), payload)


def window_of(per_s: float) -> float:
    """The length of the window for a rate per ``per_s`` seconds."""
    return per_s + min(per_s / 10, _MARGIN_S)


def check_limits(limits: Iterable[object], what: str) -> tuple[Limit, ...]:
    """The ``limits=`` of a job as a tuple. Raises DeclarationError."""
    if isinstance(limits, Limit):
        raise DeclarationError(f"{what}: limits is a list", hint=f"limits=[{limits.name}]")
    found: dict[str, Limit] = {}
    for limit in limits:
        if not isinstance(limit, Limit):
            raise DeclarationError(
                f"{what}: limits holds limits, not {limit!r}", hint='make one: worker.limit("name", rate=10)'
            )
        if limit.name in found:
            raise DeclarationError(f"{what}: the limit {limit.name!r} stands in limits twice")
        found[limit.name] = limit
    return tuple(found.values())


def _text(value: object) -> str:
    text = str(value)
    if len(text) <= _LONGEST_VALUE and text.isprintable():
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _is_period(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and 0.001 <= value <= _LONGEST_S  # type: ignore[operator]
