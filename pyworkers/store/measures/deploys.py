"""Deploys: the marks of deployments, as ``Sidekiq::Deploy`` writes them and its Web UI reads them.

Run by ``api``, never by the server (deploy.rb of Sidekiq 7.0 to 8.1).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, every, one
from pyworkers.store.heartbeat import clock
from pyworkers.store.transport.replies import nonzero

TTL_S = 90 * 86_400
_LOCK_S = 60
_MOST = 100
MOST_LABEL = 200
"""The characters of a label."""


class Deploy(NamedTuple):
    """A deployment. ``at`` is the minute of its mark, in epoch seconds."""

    at: float
    label: str


def mark(keys: Keys, label: str) -> Steps[bool]:
    """Mark a deployment now, by Redis' clock; False if this label, or this minute, was marked before.

    Each host of a deployment may mark it: the same label counts once in a minute.
    """
    now = datetime.fromtimestamp((yield from clock()), UTC)
    stamp = f"{now:%Y-%m-%dT%H:%M}:00Z"
    if not (yield from one("SET", keys.deploy_lock(label), stamp, "NX", "EX", _LOCK_S, read=bool)):
        return False
    key = keys.marks(f"{now:%Y%m%d}")
    writes = [command("HSETNX", key, stamp, label, read=nonzero), command("EXPIRE", key, TTL_S)]
    is_first, _ = yield from every(writes, Mode.TRANSACTION)
    return bool(is_first)


def read_deploys(keys: Keys, since: float, until: float) -> Steps[list[Deploy]]:
    """The last hundred deployments between two times (epoch seconds) of 90 days, the latest first."""
    last = datetime.fromtimestamp(until, UTC).date()
    first = max(datetime.fromtimestamp(since, UTC).date(), last - timedelta(days=90))
    days = [last - timedelta(days=back) for back in range((last - first).days + 1)]
    commands = [command("HGETALL", keys.marks(f"{day:%Y%m%d}")) for day in days]
    found = []
    for stored in (yield from every(commands, Mode.LENIENT)):
        for stamp, label in (stored or {}).items():
            at = _moment(stamp)
            if at is not None and since <= at <= until:
                found.append(Deploy(at, label.decode(errors="replace")[:MOST_LABEL]))
    return sorted(found, reverse=True)[:_MOST]


def _moment(stamp: bytes) -> float | None:
    try:
        moment = datetime.fromisoformat(stamp.decode())
    except ValueError:
        return None
    # Sidekiq writes it in UTC.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
