"""Heartbeat: writes this server into Sidekiq's registry of processes, where its Web UI and API find it.

Run by the master. The lease alone decides who owns a job; these keys may be lost without harm. The commands
are the ones of Sidekiq 8's launcher.rb (protocol.md, Servers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.wire import LIFE_S, SPOKEN
from pyworkers.store.calls import Command, Mode, Request, command, every, one
from pyworkers.store.transport.replies import seconds

# go-workers2 (its main branch; v0.10.4 has no heartbeat) removes a server without heartbeats from
# ``processes`` after 60 s, and checks every 5 s. The hash must exist for longer: go-workers2's heartbeat ends
# for good if it finds a name there without a hash.
TTL_S = 90
"""How long a server without heartbeats is shown."""
# Sidekiq's launcher.rb.
_WORK_TTL_S = 60


def clock() -> Request[float]:
    """Redis' clock, in epoch seconds."""
    return one("TIME", read=seconds)


def beat(
    keys: Keys,
    identity: str,
    fields: Mapping[str, str | int | bytes],
    jobs: Mapping[str, str] | None,
    *,
    signalled: bool = True,
    sidekiq6: bool = False,
) -> Request[bytes | None]:
    """Write a server's heartbeat and running jobs; ``jobs`` None: none run, nor did at the last heartbeat.

    Returns a signal sent to this server, or None; read only if ``signalled``. ``sidekiq6``: write the
    running jobs under their earlier name as well.
    """
    commands: list[Command] = []
    for work in _works(keys, identity, sidekiq6) if jobs is not None else ():
        commands.append(command("UNLINK", work))
        if jobs:
            commands += (_write(work, jobs), command("EXPIRE", work, _WORK_TTL_S))
    commands.append(command("SADD", keys.processes, identity))
    commands.append(_write(keys.process(identity), fields))
    commands.append(command("EXPIRE", keys.process(identity), TTL_S))
    if signalled:
        commands.append(command("RPOP", keys.signals(identity)))
    mode = Mode.PIPELINE if jobs is None else Mode.TRANSACTION
    return Request(commands, _last if signalled else _nothing, mode)


def note_wire(keys: Keys, now: float) -> Request[None]:
    """Note the versions of the wire that this server speaks, at Redis' time ``now``; drop old notes.

    Without a transaction: a part of it does no harm, and each is sent again after a minute.
    """
    notes = [part for version in SPOKEN for part in (int(now), version)]
    commands = [
        command("ZADD", keys.wire, *notes),
        command("ZREMRANGEBYSCORE", keys.wire, "-inf", int(now) - LIFE_S),
        command("EXPIRE", keys.wire, LIFE_S),
    ]
    return Request(commands, _nothing)


def spoken(keys: Keys) -> Request[list[str]]:
    """The versions of the wire that live servers speak; none if no server has noted any."""
    return one("ZRANGEBYSCORE", keys.wire, "-inf", "+inf", read=_versions)


def deregister(keys: Keys, identity: str, *, sidekiq6: bool = False) -> Request[list[Any]]:
    """Remove a server from the registry; its hash expires by itself, as Sidekiq's do."""
    works = [command("UNLINK", work) for work in _works(keys, identity, sidekiq6)]
    busy = command("UNLINK", keys.busy(identity))
    return every([command("SREM", keys.processes, identity), busy, *works])


def _works(keys: Keys, identity: str, sidekiq6: bool) -> Iterable[str]:
    return (keys.work(identity), keys.workers(identity)) if sidekiq6 else (keys.work(identity),)


def _write(key: str, fields: Mapping[str, str | int | bytes]) -> Command:
    return command("HSET", key, *chain.from_iterable(fields.items()))


def _last(found: list[Any]) -> bytes | None:
    word: bytes | None = found[-1]
    return word


def _versions(found: list[bytes]) -> list[str]:
    return sorted(version.decode(errors="replace") for version in found)


def _nothing(_found: list[Any]) -> None:
    return None
