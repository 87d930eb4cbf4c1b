"""Decoding: the description of a process, and a running job, from the fields of their hashes.

Used by the other modules of ``store``. Sidekiq and go-workers2 write descriptions as well, so each field may
be missing or of another type (contrib/docs/protocol.md, Servers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys
from pyworkers.store.calls import Command, command
from pyworkers.store.processes.views import GroupView, ProcessView, WorkView
from pyworkers.store.transport.replies import maybe_blob
from pyworkers.store.values import as_int, as_str, as_text, decoded_json, encodable, names_of

FIELDS = (
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
    "stops_at",
)
"""The fields of its hash from which a process is described."""
# Of the reason why a group has no worker.
_MOST_REASON = 500
_LIST_FIELDS = ("queue", "in_progress_queue")


def reading(keys: Keys, identity: str) -> Command:
    """The command whose reply ``described`` decodes."""
    return command("HMGET", keys.process(identity), *FIELDS, read=_values)


def _values(reply: Any) -> list[bytes | None]:
    """The values of ``FIELDS``."""
    if len(reply) != len(FIELDS):
        raise ValueError
    return [maybe_blob(value) for value in reply]


def described(identity: str, values: Sequence[bytes | None] | None) -> ProcessView | None:
    """The description of a process, from the reply to ``reading``; None if it is undecodable."""
    return process_view(identity, dict(zip(FIELDS, values or repeat(None), strict=False)))


def process_view(identity: str, stored: Mapping[str, bytes | None]) -> ProcessView | None:
    """The description of a process; None if it is undecodable."""
    info = decoded_json(stored["info"], dict)
    if info is None:
        return None
    return ProcessView(
        identity=identity,
        hostname=as_str(info.get("hostname")),
        # go-workers2 writes "Pid" (its heartbeat.go).
        pid=as_int(info.get("pid", info.get("Pid"))),
        tag=as_str(info.get("tag")),
        version=as_str(info.get("version")),
        started_at=timestamps.read(info.get("started_at")) or 0.0,
        beat=timestamps.read(as_text(stored["beat"])) or 0.0,
        busy=as_int(stored["busy"]),
        # Its own field since Sidekiq 8.1.2.
        concurrency=as_int(stored["concurrency"]) or as_int(info.get("concurrency")),
        rss_kb=as_int(stored["rss"]),
        rtt_us=as_int(stored["rtt_us"]),
        # go-workers2 writes 1.
        quiet=as_text(stored["quiet"]) in ("true", "1"),
        embedded=info.get("embedded") is True,
        queues=tuple(_queues(info)),
        labels=tuple(names_of(info.get("labels"))),
        info=info,
        look=None if stored.get("look") is None else as_int(stored.get("look")),
        lists=tuple(dict.fromkeys(_lists(stored.get("worker_heartbeats")))),
        groups=tuple(_groups(stored.get("groups"))),
        stops_at=timestamps.read(as_text(stored.get("stops_at"))) or None,
    )


def work_view(identity: str, thread: bytes, stored: bytes) -> WorkView | None:
    """A running job; None if it is undecodable. The payload is JSON text, up to Sidekiq 5 a JSON object."""
    about = decoded_json(stored, dict)
    if about is None:
        return None
    payload = about.get("payload")
    text = payload if isinstance(payload, str) else simplejson.dumps(payload)
    return WorkView(
        identity,
        as_text(thread),
        as_str(about.get("queue")),
        timestamps.read(about.get("run_at")) or 0.0,
        text.encode(errors="replace"),
        timestamps.read(about.get("limit_at")),
    )


def _queues(info: Mapping[str, Any]) -> dict[str, None]:
    """The queues in order: from the capsules since Sidekiq 8.0.9, from ``queues`` before it."""
    found = dict.fromkeys(names_of(info.get("queues")))
    capsules = info.get("capsules")
    for capsule in capsules.values() if isinstance(capsules, dict) else ():
        weights = capsule.get("weights") if isinstance(capsule, dict) else None
        found |= dict.fromkeys(names_of(list(weights) if isinstance(weights, dict) else ()))
    return found


def _groups(stored: bytes | None) -> Iterator[GroupView]:
    for name, about in (decoded_json(stored, dict) or {}).items():
        if encodable(name) and isinstance(about, dict):
            queues = about.get("queues")
            weights = queues if isinstance(queues, dict) else {}
            yield GroupView(
                name,
                {queue: as_int(weights[queue]) for queue in names_of(list(weights))},
                about.get("strict") is True,
                as_str(about.get("mode")),
                as_int(about.get("processes")),
                as_int(about.get("concurrency")),
                as_int(about.get("busy")),
                about.get("ordered") is True,
                _counts(about.get("workers")),
                as_int(about.get("restarts")),
                as_str(about.get("failing"))[:_MOST_REASON],
            )


def _counts(value: object) -> dict[str, int]:
    """Numbers by name, without those that are 0."""
    found = value if isinstance(value, dict) else {}
    return {name: number for name in names_of(list(found)) if (number := as_int(found[name]))}


def _lists(stored: bytes | None) -> Iterator[tuple[str, str]]:
    """Queue and in-progress list of each worker. go-workers2 encodes them as JSON twice (its storage.go)."""
    for beat in decoded_json(stored, list) or ():
        about = beat if isinstance(beat, dict) else {}
        texts = [decoded_json(as_str(about.get(name)).encode(errors="replace"), str) for name in _LIST_FIELDS]
        queue, name = (text if encodable(text) else None for text in texts)
        if queue and name and name.endswith(INPROGRESS_SUFFIX):
            yield queue, name
