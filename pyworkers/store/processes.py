"""Processes: reads the descriptions that servers write to Redis, Sidekiq's and go-workers2's included.

Used by ``api``, and ``cleanup`` by the server as well. Descriptions are written by several programs, so each
field may be missing or of another type (contrib/docs/protocol.md, Servers).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeVar

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.draft import batches
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, WATCHED_TTL_S, Keys
from pyworkers.store.calls import Call, Mode, Pages, Steps, command, decoded, every, one
from pyworkers.store.transport.replies import integer

_FIELDS = (
    "info",
    "busy",
    "beat",
    "quiet",
    "rss",
    "rtt_us",
    "concurrency",
    "look",
    "worker_heartbeats",
    "groups",
)
_LIST_FIELDS = ("queue", "in_progress_queue")
# Sidekiq's names of the signals: TSTP: take no more jobs, TERM: stop, TTIN: log the stacks.
QUIET, STOP, DUMP = "TSTP", "TERM", "TTIN"
SIGNAL_TTL_S = 60
"""Sidekiq's api.rb: a process that has not read a signal after this time has crashed."""
CLEANUP_S = 60
"""The time between two cleanups, of all programs together (Sidekiq's api.rb)."""
_PER_ROUND_TRIP = 100
# Heartbeats come every 5 to 15 s; after this time Sidekiq's own descriptions expire (protocol.md, Servers).
_SILENT_S = 60.0
# An idle server writes its heartbeat every 15 s: a server without one for this time will not answer.
_ANSWERS_S = 20.0

J = TypeVar("J", dict[str, Any], list[Any], str)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of a pyworkers server: queues that share workers, each with its weight.

    ``concurrency`` is the number of jobs that can run at a time, ``busy`` that of the jobs that run.
    """

    name: str
    queues: Mapping[str, int]
    strict: bool
    mode: str
    processes: int
    concurrency: int
    busy: int


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process. ``beat`` and ``started_at`` are in epoch seconds, ``rss_kb`` in KiB, ``rtt_us`` in µs."""

    identity: str
    hostname: str
    pid: int
    tag: str
    version: str
    started_at: float
    beat: float
    busy: int
    concurrency: int
    rss_kb: int
    rtt_us: int
    quiet: bool
    embedded: bool
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    info: Mapping[str, Any] = field(repr=False)
    look: int | None = field(default=None, repr=False)
    """The number of the last ``watch`` that the server has answered; None for other programs' servers."""
    lists: tuple[tuple[str, str], ...] = ()
    """Queue and in-progress list (without ``queue:``) of each worker, from go-workers2's heartbeat."""
    groups: tuple[GroupView, ...] = ()
    """Empty for other programs' servers."""

    def silent(self, now: float) -> bool:
        """True without a heartbeat for a minute: go-workers2's descriptions remain after an exit."""
        return now - self.beat > _SILENT_S


@dataclass(frozen=True, slots=True)
class WorkView:
    """One running job; ``run_at`` is its start in epoch seconds."""

    identity: str
    thread: str
    queue: str
    run_at: float
    payload: bytes


class Processes(Pages[ProcessView]):
    """The processes with a description in Redis, in no order."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._identities = _Identities(keys)

    def next_page(self) -> Steps[list[ProcessView]]:
        names = yield from self._identities.next_page()
        self.ended = self._identities.ended
        hashes = [command("HMGET", self._keys.process(name), *_FIELDS) for name in names]
        replies = yield from every(hashes, Mode.LENIENT)
        views = (
            process_view(name, dict(zip(_FIELDS, values or repeat(None), strict=False)))
            for name, values in zip(names, replies, strict=True)
        )
        return [view for view in views if view is not None]


class Works(Pages[WorkView]):
    """The running jobs of these processes."""

    def __init__(self, keys: Keys, identities: Sequence[str]) -> None:
        self._keys = keys
        self._batches = deque(batches(identities, _PER_ROUND_TRIP))
        self.ended = not self._batches

    def next_page(self) -> Steps[list[WorkView]]:
        names = self._batches.popleft()
        self.ended = not self._batches
        keys = [key for name in names for key in (self._keys.work(name), self._keys.workers(name))]
        replies = yield from every([command("HGETALL", key) for key in keys], Mode.LENIENT)
        views = (
            work_view(name, thread, value)
            for name, now, before in zip(names, replies[::2], replies[1::2], strict=True)
            for thread, value in {**(before or {}), **(now or {})}.items()
        )
        return [view for view in views if view is not None]


def registered(keys: Keys) -> Call[int]:
    """The number of names in ``processes``; a few of them may have crashed."""
    return one("SCARD", keys.processes, read=integer)


def leader(keys: Keys) -> Call[str]:
    """The identity of Sidekiq Enterprise's leader; empty if there is none."""
    return one("GET", keys.leader, read=_text)


def signal(keys: Keys, identity: str, word: str) -> Steps[None]:
    """Store a signal for a process, which reads it with its next heartbeat (Sidekiq's api.rb)."""
    key = keys.signals(identity)
    yield from every([command("LPUSH", key, word), command("EXPIRE", key, SIGNAL_TTL_S)], Mode.TRANSACTION)


def watch(keys: Keys) -> Steps[int]:
    """Request that the servers write their counters now, and each second for the next ten.

    Returns the number of this request, for ``answered``. Raises StoreError if the user may not write.
    """
    seconds, microseconds = yield from one("TIME", read=tuple)
    look = int(seconds) * 1_000_000 + int(microseconds)
    yield from one("SET", keys.watched, look, "EX", WATCHED_TTL_S, read=bool)
    return look


def answered(keys: Keys, look: int) -> Steps[bool]:
    """True if each live pyworkers server has answered the ``watch`` with this number, or a later one."""
    late = look / 1e6 - _ANSWERS_S
    pages = Processes(keys)
    while not pages.ended:
        for view in (yield from pages.next_page()):
            if view.look is not None and view.look < look and view.beat >= late:
                return False
    return True


def cleanup(keys: Keys) -> Steps[list[bytes]]:
    """Remove the processes whose description has expired, unless a program did it in the last minute.

    Returns their names. A description of another type, or one that the user may not read, counts as present.
    """
    if not (yield from one("SET", keys.process_cleanup, "1", "NX", "EX", CLEANUP_S, read=bool)):
        return []
    removed: list[bytes] = []
    identities = _Identities(keys)
    while not identities.ended:
        names = yield from identities.next_page()
        infos = [command("HGET", keys.process(name), "info", read=_is_present) for name in names]
        present = yield from every(infos, Mode.LENIENT)
        expired = [name for name, there in zip(names, present, strict=True) if there is False]
        if expired:
            yield from one("SREM", keys.processes, *expired, read=integer)
            removed += (name.encode(errors="surrogateescape") for name in expired)
    return removed


def process_view(identity: str, stored: Mapping[str, bytes | None]) -> ProcessView | None:
    """The description of a process; None if it is undecodable."""
    info = _object(stored["info"])
    if info is None:
        return None
    return ProcessView(
        identity=identity,
        hostname=_str(info.get("hostname")),
        # go-workers2 writes "Pid" (its heartbeat.go).
        pid=_int(info.get("pid", info.get("Pid"))),
        tag=_str(info.get("tag")),
        version=_str(info.get("version")),
        started_at=timestamps.read(info.get("started_at")) or 0.0,
        beat=timestamps.read(_text(stored["beat"])) or 0.0,
        busy=_int(stored["busy"]),
        # A field of its own since Sidekiq 8.1.2.
        concurrency=_int(stored["concurrency"]) or _int(info.get("concurrency")),
        rss_kb=_int(stored["rss"]),
        rtt_us=_int(stored["rtt_us"]),
        # go-workers2 writes 1.
        quiet=_text(stored["quiet"]) in ("true", "1"),
        embedded=info.get("embedded") is True,
        queues=tuple(_queues(info)),
        labels=tuple(names_of(info.get("labels"))),
        info=info,
        look=None if stored.get("look") is None else _int(stored.get("look")),
        lists=tuple(dict.fromkeys(_lists(stored.get("worker_heartbeats")))),
        groups=tuple(_groups(stored.get("groups"))),
    )


def work_view(identity: str, thread: bytes, stored: bytes) -> WorkView | None:
    """A running job; None if it is undecodable. The payload is JSON text, up to Sidekiq 5 a JSON object."""
    about = _object(stored)
    if about is None:
        return None
    payload = about.get("payload")
    text = payload if isinstance(payload, str) else simplejson.dumps(payload)
    return WorkView(
        identity,
        _text(thread),
        _str(about.get("queue")),
        timestamps.read(about.get("run_at")) or 0.0,
        text.encode(errors="surrogateescape"),
    )


class _Identities(Pages[str]):
    """The members of ``processes``, each once."""

    def __init__(self, keys: Keys) -> None:
        self._key = keys.processes
        self._cursor = 0
        self._seen: set[bytes] = set()

    def next_page(self) -> Steps[list[str]]:
        self._cursor, found = yield from one(
            "SSCAN", self._key, self._cursor, "COUNT", _PER_ROUND_TRIP, read=tuple
        )
        self.ended = self._cursor == 0
        fresh = [name for name in found if name not in self._seen]
        self._seen.update(fresh)
        return [decoded(name) for name in fresh]


def _queues(info: Mapping[str, Any]) -> dict[str, None]:
    """The queues in order: from the capsules since Sidekiq 8.0.9, from ``queues`` before it."""
    found = dict.fromkeys(names_of(info.get("queues")))
    capsules = info.get("capsules")
    for capsule in capsules.values() if isinstance(capsules, dict) else ():
        weights = capsule.get("weights") if isinstance(capsule, dict) else None
        found |= dict.fromkeys(names_of(list(weights) if isinstance(weights, dict) else ()))
    return found


def _groups(stored: bytes | None) -> Iterator[GroupView]:
    for name, about in (_object(stored) or {}).items():
        if _encodes(name) and isinstance(about, dict):
            queues = about.get("queues")
            weights = queues if isinstance(queues, dict) else {}
            yield GroupView(
                name,
                {queue: _int(weights[queue]) for queue in names_of(list(weights))},
                about.get("strict") is True,
                _str(about.get("mode")),
                _int(about.get("processes")),
                _int(about.get("concurrency")),
                _int(about.get("busy")),
            )


def _lists(stored: bytes | None) -> Iterator[tuple[str, str]]:
    """Queue and in-progress list of each worker. go-workers2 encodes them as JSON twice (its storage.go)."""
    for beat in _json(stored, list) or ():
        about = beat if isinstance(beat, dict) else {}
        texts = [_json(_str(about.get(name)).encode(errors="replace"), str) for name in _LIST_FIELDS]
        queue, name = (text if _encodes(text) else None for text in texts)
        if queue and name and name.endswith(INPROGRESS_SUFFIX):
            yield queue, name


def names_of(value: object) -> list[str]:
    """The strings of a list, without those that UTF-8 cannot encode: no key can have their name."""
    names = value if isinstance(value, list) else []
    return [name for name in names if _encodes(name)]


def _encodes(name: object) -> bool:
    try:
        return isinstance(name, str) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _object(stored: bytes | None) -> dict[str, Any] | None:
    return _json(stored, dict)


def _json(stored: bytes | None, kind: type[J]) -> J | None:
    try:
        value = simplejson.loads(stored) if stored else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _int(value: object) -> int:
    try:
        return int(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0


def _str(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _text(stored: bytes | None) -> str:
    return "" if stored is None else decoded(stored)


def _is_present(stored: bytes | None) -> bool:
    return stored is not None
