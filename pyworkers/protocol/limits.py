"""Limits over all servers: how many jobs may start in a time, or run at once, and how a worker asks for it.

Pure; declared by the application, asked for by the worker process, granted by Redis (ask.lua). A job has its
limits by its handler alone: its envelope does not name them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import simplejson

from pyworkers.errors import BadArgumentError, DeclarationError
from pyworkers.protocol.options import is_number
from pyworkers.protocol.sealing import FIELD

if TYPE_CHECKING:
    from pyworkers.protocol.message import Message

By = Callable[..., object]
"""Called with the arguments of a job; jobs with equal results share a limit."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAME_RULE = "1 to 64 letters, digits, '_', '-' and '.'"
_RATE = re.compile(r"([0-9]{1,7})/([0-9]{1,8})?([smhd])")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 366 * 86_400.0
_MOST = 1_000_000
# A longer value is replaced by its digest, because it is a part of the name of a key, and of a frame.
_LONGEST_VALUE = 130
_MOST_LIMITS = 8
_QUEUE, _RUNNING = "queue/", "running/"
# The window begins when a start is noted. A worker reports it just before the job's first line, and may lose
# the processor in between. So the window is longer than declared by a tenth, but by no more than this.
_MARGIN_S = 0.004
# A window is kept for this much longer, with the turns of jobs that may be late.
_KEPT_S = 60


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """The limits of a whole queue over all servers; 0 is no limit. ``rate`` starts in ``per_s`` seconds."""

    rate: int = 0
    per_s: float = 1.0
    max_running: int = 0

    @classmethod
    def of(cls, rate: str | None, max_running: int | None) -> QueueLimit | None:
        """The limits as the configuration has them, e.g. ``10/s`` and 3; None for none.

        Raises ValueError for an invalid rate.
        """
        if rate is None and max_running is None:
            return None
        number, per_s = (0, 1.0) if rate is None else parse_rate(rate)
        return cls(number, per_s, max_running or 0)


def parse_rate(text: str) -> tuple[int, float]:
    """Starts and seconds of a rate: ``10/s``, ``600/m``, ``5/30s``. Raises ValueError."""
    found = _RATE.fullmatch(text)
    if found is None or not _is_count(int(found[1])):
        raise ValueError(f"must be starts and a period, e.g. 10/s, 600/m, 5/30s, not {text!r}")
    per_s = int(found[2] or 1) * _UNITS_S[found[3]]
    if not _is_period(per_s):
        raise ValueError(f"must have a period from a second to a year, not {text!r}")
    return int(found[1]), float(per_s)


class Want(NamedTuple):
    """What one job asks of one limit. ``window_s``: the window of a rate, 0 for jobs at once."""

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
                    f"the limit {self.name!r}: {option} must be an integer from 1 to {_MOST}, not {value!r}",
                    hint="one start in 2 s: rate=1, per=2" if option == "rate" else "",
                )
        if not _is_period(self.per):
            raise DeclarationError(
                f"the limit {self.name!r}: per must be in seconds, from 0.001 to a year, not {self.per!r}"
            )
        if self.by is not None and not callable(self.by):
            raise DeclarationError(f"the limit {self.name!r}: by must be a function of the job's arguments")

    @property
    def window_s(self) -> float:
        """The length of the window in which ``rate`` starts are granted; 0 without a rate."""
        return 0.0 if self.rate is None else window_of(self.per)

    def want(self, args: Sequence[Any], *, encrypted: bool = False) -> Want:
        """What a job with these arguments asks for. ``encrypted``: the key has a hash of the value of ``by``.

        Raises what ``by`` raises, and BadArgumentError if it returns something that has no text.
        """
        key = self.name
        if self.by is not None:
            value = self._value(self.by(*args))
            key += f":{_hashed(value) if encrypted else _short(value)}"
        return Want(key, self.rate or self.concurrency or 0, self.window_s)

    def _value(self, found: object) -> str:
        """The value of ``by`` as text. With an address in it, each process would have its own limit."""
        text = str(found)
        if not isinstance(found, str) and _ADDRESS.search(text):
            raise BadArgumentError(
                f"the limit {self.name!r}: by returned {text[:100]}, whose text differs in each process: "
                "return a text or a number"
            )
        return text


@dataclass(frozen=True, slots=True)
class Ask:
    """A job that may start only if all its limits allow it."""

    jid: str
    """The name of the job among the waiting ones."""
    holder: str
    """Names this run of the job, its id behind a space; the master puts its identity in front."""
    wants: tuple[Want, ...]
    changes: Mapping[str, str] = field(default_factory=dict)
    """The fields that the envelope needs in ``schedule``, and lacks."""
    retiring: bool = False
    """The worker takes no further job."""

    def pack(self) -> bytes:
        """The ask as JSON: less than 4 KiB, because it travels in one frame."""
        wants = [list(want) for want in self.wants]
        return simplejson.dumps([self.jid, self.holder, wants, self.changes, self.retiring]).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Ask:
        """The inverse of ``pack``. Raises ValueError for other bytes."""
        try:
            jid, holder, wants, changes, retiring = simplejson.loads(data)
            return cls(jid, holder, tuple(Want(*want) for want in wants), changes, bool(retiring))
        except TypeError as error:
            raise ValueError("an ask of another form") from error


@dataclass(frozen=True, slots=True)
class LimitStats:
    """One limit at one time, with one value of its ``by``."""

    key: str
    """The name; with ``by``, a colon and its value follow. For the queue ``pay``, ``queue/pay`` is its rate,
    and ``running/pay`` its ``max_running``.
    """
    most: int
    per_s: float
    """``most`` starts in any ``per_s`` seconds; if ``per_s`` is 0, ``most`` jobs at once."""
    used: int
    """The starts in the period, or the jobs that hold a slot."""
    waiting: int
    """The jobs that were put off, or are on their way back; for a whole queue, the jobs in it."""

    def as_dict(self) -> dict[str, Any]:
        """The limit for JSON: with ``rate`` and ``per``, or ``concurrency``."""
        kind = {"rate": self.most, "per": self.per_s} if self.per_s else {"concurrency": self.most}
        name = name_of(self.key)
        value = self.key[len(name) + 1 :].encode(errors="replace").decode()
        by = value if self.key != name else None
        return {"name": name, "by": by, **kind, "used": self.used, "waiting": self.waiting}


def ask_for(message: Message, limits: Iterable[Limit], holder: str) -> Ask:
    """The ask of a job; the arguments of an encrypted one are open. Raises what its limits' ``by`` raise."""
    facts = {"jid": message.jid, "queue": message.queue}
    changes = {name: value for name, value in facts.items() if message.data.get(name) != value}
    jid, encrypted = _short(message.jid), message.data.get(FIELD) is True
    wants = tuple(limit.want(message.args, encrypted=encrypted) for limit in limits)
    return Ask(jid, f"{holder} {jid}", wants, changes)


def queue_key(queue: str) -> str:
    """The key of the rate of a whole queue; no name of a limit has a slash."""
    return f"{_QUEUE}{queue}"


def running_key(queue: str) -> str:
    """The key under which ``max_running`` of a whole queue is listed."""
    return f"{_RUNNING}{queue}"


def queue_of(key: str) -> str:
    """The queue of such a key; empty for a limit of jobs."""
    kind, slash, queue = key.partition("/")
    return queue if kind + slash in (_QUEUE, _RUNNING) else ""


def name_of(key: str) -> str:
    """The name of a limit; for a whole queue, its key."""
    return key if queue_of(key) else key.partition(":")[0]


def window_of(per_s: float) -> float:
    """The length of the window for a rate per ``per_s`` seconds."""
    return per_s + min(per_s / 10, _MARGIN_S)


def ttl_of(window_s: float) -> int:
    """The TTL of the starts of such a window, in seconds."""
    return math.ceil(window_s) + _KEPT_S


def period_of(window_s: float) -> float:
    """The inverse of ``window_of``."""
    return round(max(window_s / 1.1, window_s - _MARGIN_S), 6)


def check_limits(limits: Sequence[object], what: str) -> tuple[Limit, ...]:
    """The ``limits=`` of a job as a tuple. Raises DeclarationError."""
    if isinstance(limits, Limit):
        raise DeclarationError(f"{what}: limits is a list", hint=f"limits=[{limits.name}]")
    if not isinstance(limits, list | tuple):
        raise DeclarationError(f"{what}: limits must be a list, not {limits!r}")
    if len(limits) > _MOST_LIMITS:
        raise DeclarationError(f"{what}: a job has at most {_MOST_LIMITS} limits")
    found: dict[str, Limit] = {}
    for limit in limits:
        if not isinstance(limit, Limit):
            raise DeclarationError(
                f"{what}: limits must have only limits, not {limit!r}",
                hint='make one: worker.limit("name", rate=10)',
            )
        if limit.name in found:
            raise DeclarationError(f"{what}: the limit {limit.name!r} is in limits twice")
        found[limit.name] = limit
    return tuple(found.values())


def _short(text: str) -> str:
    if text.isprintable() and len(simplejson.dumps(text)) <= _LONGEST_VALUE:
        return text
    return _hashed(text)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _is_period(value: object) -> bool:
    return is_number(value) and 0.001 <= value <= _LONGEST_S
