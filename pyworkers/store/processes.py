"""Registry: the server processes that describe themselves in Redis, Sidekiq's and go-workers2's included.

Used by ``api``; never by the server. It shows what other programs wrote, so nothing in it is taken for
granted (protocol.md, Servers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeVar

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.draft import batches
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, WATCHED_TTL_S
from pyworkers.store.admin import Admin

_FIELDS = ("info", "busy", "beat", "quiet", "rss", "rtt_us", "concurrency", "look", "worker_heartbeats")
_LIST_FIELDS = ("queue", "in_progress_queue")
# Sidekiq's names: TSTP fetches nothing more, TERM stops, TTIN logs the stacks.
QUIET, STOP, DUMP = "TSTP", "TERM", "TTIN"
_PER_ROUND_TRIP = 100
_CLEANUP_S = 60
# Everybody beats every 5 or 10 s; after this time Sidekiq's own descriptions are gone (protocol.md, Servers).
_SILENT_S = 60.0
# A server that is idle beats every 15 s: one that has not beaten for longer will not answer.
_ANSWERS_S = 20.0

J = TypeVar("J", dict[str, Any], list[Any], str)


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
    """The last ``watch`` that it has answered; None for other programs' servers."""
    lists: tuple[tuple[str, str], ...] = ()
    """Queue and in-progress list (without ``queue:``) of each, as go-workers2 says with its heartbeat."""

    def silent(self, now: float) -> bool:
        """True without a heartbeat for a minute: go-workers2's descriptions outlive their process."""
        return now - self.beat > _SILENT_S


@dataclass(frozen=True, slots=True)
class WorkView:
    """One running job; ``run_at`` is when it began, in epoch seconds."""

    identity: str
    thread: str
    queue: str
    run_at: float
    payload: bytes


def processes(admin: Admin) -> Iterator[ProcessView]:
    """The processes that have described themselves, in no order. Raises RedisUnavailableError, StoreError."""
    for names in _identities(admin):
        replies = admin.look([("HMGET", admin.keys.process(name), *_FIELDS) for name in names])
        for name, values in zip(names, replies, strict=True):
            view = process_view(name, dict(zip(_FIELDS, values or repeat(None), strict=False)))
            if view is not None:
                yield view


def works(admin: Admin, identities: Sequence[str]) -> Iterator[WorkView]:
    """The running jobs of these processes."""
    keys = admin.keys
    for names in batches(identities, _PER_ROUND_TRIP):
        hashes = [("HGETALL", key) for name in names for key in (keys.work(name), keys.workers(name))]
        replies = admin.look(hashes)
        for name, now, before in zip(names, replies[::2], replies[1::2], strict=True):
            for thread, value in {**(before or {}), **(now or {})}.items():
                view = work_view(name, thread, value)
                if view is not None:
                    yield view


def watch(admin: Admin) -> int:
    """Have the servers write their numbers now, and each second for a while. The number of this look.

    Raises RedisUnavailableError, and StoreError where the user may not write.
    """
    seconds, microseconds = admin.run("TIME")
    look = int(seconds) * 1_000_000 + int(microseconds)
    admin.run("SET", admin.keys.watched, look, "EX", WATCHED_TTL_S)
    return look


def answered(admin: Admin, look: int) -> bool:
    """True if each server that is alive has written its numbers since. Raises PyworkersError."""
    late = look / 1e6 - _ANSWERS_S
    return not any(
        view.look is not None and view.look < look and view.beat >= late for view in processes(admin)
    )


def cleanup(admin: Admin) -> int:
    """Remove the processes whose description has expired, unless that was done in the last minute.

    Returns how many there were.
    """
    keys = admin.keys
    if not admin.run("SET", keys.process_cleanup, "1", "NX", "EX", _CLEANUP_S):
        return 0
    forgotten = 0
    for names in _identities(admin):
        infos = admin.look([("HEXISTS", keys.process(name), "info") for name in names])
        dead = [name for name, there in zip(names, infos, strict=True) if not there]
        forgotten += admin.run("SREM", keys.processes, *dead) if dead else 0
    return forgotten


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
        # Apart since Sidekiq 8.1.2.
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
    )


def work_view(identity: str, thread: bytes, stored: bytes) -> WorkView | None:
    """A running job; None if what stands there is none. The payload is JSON text, or an object up to 5."""
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


def _identities(admin: Admin) -> Iterator[list[str]]:
    """The members of ``processes``, each once, in portions."""
    seen: set[bytes] = set()
    cursor = 0
    while True:
        cursor, found = admin.run("SSCAN", admin.keys.processes, cursor, "COUNT", _PER_ROUND_TRIP)
        fresh = [name for name in found if name not in seen]
        seen.update(fresh)
        yield from batches([_text(name) for name in fresh], _PER_ROUND_TRIP)
        if not int(cursor):
            return


def _queues(info: Mapping[str, Any]) -> dict[str, None]:
    """The queues: those of the capsules since Sidekiq 8.0.9, and of ``queues`` before. A dict keeps order."""
    found = dict.fromkeys(names_of(info.get("queues")))
    capsules = info.get("capsules")
    for capsule in capsules.values() if isinstance(capsules, dict) else ():
        weights = capsule.get("weights") if isinstance(capsule, dict) else None
        found |= dict.fromkeys(names_of(list(weights) if isinstance(weights, dict) else ()))
    return found


def _lists(stored: bytes | None) -> Iterator[tuple[str, str]]:
    """go-workers2 encodes the texts twice (its storage.go)."""
    for beat in _json(stored, list) or ():
        about = beat if isinstance(beat, dict) else {}
        texts = [_json(_str(about.get(name)).encode(errors="replace"), str) for name in _LIST_FIELDS]
        queue, name = (text if _encodes(text) else None for text in texts)
        if queue and name and name.endswith(INPROGRESS_SUFFIX):
            yield queue, name


def names_of(value: object) -> list[str]:
    """The texts of a list, but for those that UTF-8 cannot carry: no key has such a name."""
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
    return "" if stored is None else stored.decode(errors="surrogateescape")
