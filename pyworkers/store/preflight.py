"""Preflight: finds unsafe settings of a Redis and an application, each with its fix.

Used by the master at its start and by ``pyworkers check``. ``inspect`` reads the settings of a Redis, and the
rest is pure. The sources are Redis' own pages on eviction, persistence and replication.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyworkers.config.checks import mask_url
from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import place
from pyworkers.embedded import socket_url
from pyworkers.errors import StoreError
from pyworkers.protocol.flow.features import BROKEN
from pyworkers.protocol.keys import slot_key
from pyworkers.protocol.wire import SPOKEN, VERSION
from pyworkers.store.calls import Steps, one
from pyworkers.store.flow.classes import UnawareServer
from pyworkers.store.flow.servers import FIELDS_OF_OTHERS, Uninformed
from pyworkers.store.heartbeat import clock as redis_clock
from pyworkers.store.transport.replies import done, integer
from pyworkers.store.transport.tls import has_tls

if TYPE_CHECKING:
    from pyworkers.protocol.moving import MoveState
    from pyworkers.store.foreign import LeftList

OLDEST = (6, 2)
# Each host schedules jobs by its own clock; users notice jobs that are early or late by more than this.
MOST_OFFSET_S = 1.0
SLOW_IMPORT_MS = 10_000
_MOST_NAMED = 5
# Of maxmemory: what is left is a warning, not yet an outage.
_MOST_MEMORY = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that can lose or delay jobs: its code, a message, and the fix."""

    code: str
    message: str
    fix: str
    advice: bool = False
    """True for a setting that a healthy new Redis has."""


def inspect(redis_cli: str, clock: Callable[[], float], *, followed: bool = False) -> Steps[list[Finding]]:
    """Find the unsafe settings of a Redis.

    ``redis_cli`` is the command line that reaches it, ``clock`` gives epoch seconds on this host, and
    ``followed`` is true if sentinels, or the nodes of a cluster, name it as the primary.
    """
    info = yield from _info()
    before = clock()
    theirs = yield from redis_clock()
    offset_s = (before + clock()) / 2 - theirs
    save = yield from _save()
    scripts = yield from _may_run_scripts()
    return judge(info, save, offset_s, redis_cli, scripts=scripts, followed=followed)


def judge(
    info: Mapping[str, str] | None,
    save: str | None,
    offset_s: float,
    redis_cli: str,
    *,
    scripts: bool = True,
    followed: bool = False,
) -> list[Finding]:
    """All findings about a Redis. ``info`` is its INFO, and ``save`` its setting of that name, if they may be
    read.

    ``offset_s``: the seconds that this host's clock is ahead of Redis'; ``scripts``: the user may run them;
    ``followed``: sentinels, or the nodes of a cluster, name this server as the primary.
    ``redis_cli`` is the command line that reaches this server, so that a fix changes no other server.
    """
    found = [_clock(offset_s)]
    if info is not None:
        found = [
            _version(info),
            _role(info),
            _eviction(info, redis_cli),
            _memory(info),
            _persistence(info, save, redis_cli),
            *found,
            _replication(info, redis_cli) if followed else None,
        ]
    if not scripts:
        message = "this user may not run scripts, which pyworkers needs for each change"
        fix = "pyworkers acl --role worker, with the same --config, --url and --namespace"
        found.append(Finding("scripts", message, fix))
    return [finding for finding in found if finding is not None]


# In the slot of the namespace, on a cluster.
_UNDECLARED = "return redis.call('EXISTS', ARGV[1])"


def lacks(namespace: str) -> Steps[list[Finding]]:
    """Find what a managed Redis may not have.

    What an ACL forbids is no finding, as it may be intended, except INFO: `pyworkers acl` grants it.
    """
    asked = {
        "info": one("INFO", "server", read=_texts),
        "tracking": one("CLIENT", "TRACKING", "OFF", read=done),
        "config": one("CONFIG GET", "save", read=_first),
        "undeclared": one("EVAL", _UNDECLARED, 0, slot_key(namespace), read=integer),
    }
    found = []
    for name, request in asked.items():
        try:
            yield from request
        except StoreError as error:
            if error.code in ("UNKNOWN", "UNDECLARED") or (name == "info" and error.code == "NOPERM"):
                found.append(_LACKS[name])
    return found


_LACKS = {
    finding.code: finding
    for finding in (
        Finding(
            "undeclared",
            "this Redis refuses scripts with undeclared keys, so limits, batches, cron and the sweep fail",
            "allow undeclared keys in its settings, or use Redis 6.2 or newer, or Valkey",
        ),
        Finding(
            "info",
            "this Redis does not show INFO to this user, so version, persistence and replicas are not known",
            "compare the settings of the service: appendonly yes, maxmemory-policy noeviction; or add +info",
            advice=True,
        ),
        Finding(
            "tracking",
            "this Redis has no CLIENT TRACKING, so each server reads changes once a second",
            "no change is needed; on a metered service, count 60 commands a minute for each server",
            advice=True,
        ),
        Finding(
            "config",
            "this Redis has no CONFIG, so it is not known whether it saves its data",
            "compare the settings of the service: appendonly yes, maxmemory-policy noeviction",
            advice=True,
        ),
    )
}


def judge_password(addresses: Sequence[str]) -> list[Finding]:
    """Findings if a password goes over a network in plain text, to these addresses."""
    fix = "write rediss instead of redis in redis.url, e.g. rediss+cluster://, and give Redis a tls-port"
    message = f"the password goes to {_some(addresses)} in plain text, readable on the way"
    return [Finding("plain_password", message, fix, advice=True)] if addresses else []


def judge_files(redis: RedisConfig) -> list[Finding]:
    """Findings if files for TLS are set, and the URL is one without TLS."""
    scheme = redis.url.partition("://")[0]
    names = " and ".join(name for name in ("ca_file", "cert_file", "key_file") if getattr(redis, name))
    if not names or has_tls(redis.url) or not scheme.startswith("redis"):
        return []
    message = f"connections by {scheme}:// are not encrypted, and nothing reads {names}"
    fix = f"write {scheme.replace('redis', 'rediss')}:// in the url, or remove {names}"
    return [Finding("unencrypted", message, fix, advice=True)]


def _info() -> Steps[Mapping[str, str] | None]:
    try:
        return (yield from one("INFO", "everything", read=_texts))
    except StoreError as error:
        if error.code not in ("NOPERM", "UNKNOWN"):
            raise
        return None


def _save() -> Steps[str | None]:
    try:
        return (yield from one("CONFIG GET", "save", read=_first))
    except StoreError:
        # Managed servers refuse CONFIG, and so does a minimal ACL.
        return None


def _may_run_scripts() -> Steps[bool]:
    try:
        yield from one("EVAL", "return 1", 0, read=integer)
    except StoreError as error:
        return error.code not in ("NOPERM", "UNKNOWN")
    return True


def _texts(info: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in info.items()}


def _first(found: Mapping[str, str]) -> str | None:
    return next(iter(found.values()), None)


LEFT_OPEN = "open it in on_startup, or drop it there: engine.dispose(close=False) of SQLAlchemy"


def judge_app(app: str, import_ms: int, threads: Sequence[str], opened: Sequence[str] = ()) -> list[Finding]:
    """Findings about an application that can be imported."""
    found = []
    if opened:
        shared = ", ".join(opened)
        message = f"the import of the application leaves this open, and all workers share it: {shared}"
        found.append(Finding("left_open", message, LEFT_OPEN))
    if threads:
        message = f"the application starts threads when it is imported: {', '.join(threads)}"
        found.append(Finding("threads", message, "start them in an on_startup hook: workers are forked"))
    if import_ms > SLOW_IMPORT_MS:
        message = f"the application takes {import_ms / 1000:.1f} s to import, at each start and reload"
        found.append(Finding("import", message, f"python -X importtime -c 'import {app.partition(':')[0]}'"))
    return found


def judge_queues(
    redis: str, waiting: Mapping[str, int], served: Collection[str], homes: Mapping[str, str]
) -> list[Finding]:
    """Findings about the queues in the Redis of this name.

    ``waiting`` is the number of jobs by queue, ``served`` the queues from which a running server takes jobs,
    ``homes`` the name of the Redis of each queue that has a handler.
    """
    return [
        Finding("unserved", _unserved(name, jobs), _served_fix(name, redis, homes.get(name)))
        for name, jobs in sorted(waiting.items())
        if jobs and homes.get(name) != redis and name not in served
    ]


def _served_fix(name: str, redis: str, home: str | None) -> str:
    if home is None:
        return f"add a handler of this queue, or see pyworkers jobs {name}"
    return f"it is on {home} now: pyworkers move {name} --from {redis} --to {home}"


def _unserved(name: str, jobs: int) -> str:
    waiting = "1 job waits" if jobs == 1 else f"{jobs} jobs wait"
    return f"{waiting} in the queue {name!r}, which no server serves"


def judge_classes(found: Iterable[UnawareServer]) -> list[Finding]:
    """Findings about servers that share a queue, and do not know each other's jobs."""
    fix = "give each application its own queues; in a deployment, wait until all servers have the new code"
    return [
        Finding(
            "classes",
            f"{one.name} serves the queue {one.queue!r} as {one.other} does, and does not know "
            f"{_some(one.classes)}: such a job fails there",
            fix,
        )
        for one in found
    ]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def judge_servers(found: Uninformed) -> list[Finding]:
    """Findings about servers on the same Redis that leave out the effects of jobs."""
    repair = "the sweep of the newer servers repairs it within two minutes, and counts their members as gone"
    older = [
        Finding(
            "old_server",
            f"{view.identity} runs pyworkers {view.version}, which releases no locks and counts no batches",
            f"restart it with this version; until then {repair}",
        )
        for view in found.older
    ]
    foreign = [
        Finding(
            "foreign_server",
            f"{one.view.identity} ({one.program}) is of another program, and serves {_spelled(one.uses)}: "
            + ", ".join(f"{BROKEN[name]} ({name})" for name in one.features),
            "put these jobs into separate queues, which only pyworkers serves; until then the sweep "
            "releases locks and counts members within two minutes, and repairs neither limits nor order",
        )
        for one in found.foreign
    ]
    return older + foreign


def judge_wire(spoken: Collection[str]) -> list[Finding]:
    """A finding if the live servers speak other versions of the wire than this release alone."""
    if not spoken or {str(version) for version in SPOKEN} & {*spoken}:
        return []
    message = f"the live servers speak wire {_some(list(spoken))}, and this release {VERSION}"
    fix = "run a release that speaks both: a version is read for two minor releases after the next one"
    return [Finding("wire", message, fix)]


def judge_left(found: Sequence[LeftList]) -> list[Finding]:
    """Advice about jobs in the lists of processes of other programs, which may be dead."""
    return [
        Finding(
            "foreign_lists",
            f"the {one.program} process {one.process} has {_jobs(one.jobs)} in progress in "
            f"{_some(list(one.queues))}, and no heartbeat: if it is dead, they stay there forever",
            f"if it is: pyworkers adopt {one.program} --process {shlex.quote(one.process)}",
            advice=True,
        )
        for one in found
    ]


def judge_moves(found: Mapping[str, tuple[MoveState, int]]) -> list[Finding]:
    """Findings about moves of queues to another Redis that have not ended."""
    return [
        Finding(
            "move",
            f"the move of the queue {queue!r} to {move.target or 'another Redis'} has not ended, and "
            f"{_jobs(parked)} {'is' if parked == 1 else 'are'} on the way",
            f"if it is not running: pyworkers move {shlex.quote(queue)} with the same --from and --to",
            advice=not parked,
        )
        for queue, (move, parked) in sorted(found.items())
    ]


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def judge_fields(found: Mapping[str, Collection[str]]) -> list[Finding]:
    """Findings about waiting jobs that need their own program (servers.py)."""
    return [
        Finding(
            "foreign_field",
            f"{FIELDS_OF_OTHERS[field]}; such jobs (`{field}`) wait in {_some(sorted(queues))}",
            "put these jobs into separate queues, which only their program serves",
        )
        for field, queues in found.items()
    ]


def _spelled(uses: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{queue} with {', '.join(names)}" for queue, names in uses.items())


def judge_producers(
    elsewhere: Mapping[str, str], server: Mapping[str, str], path: Path | None
) -> list[Finding]:
    """Findings if the application, outside of workers, enqueues to another Redis than the server's.

    Both hold fields of ``[redis]``; ``elsewhere`` may hold an ``error`` instead. ``path``: the server's file.
    """
    fix = (
        "write Worker(url=…, namespace=…), or set REDIS_URL and PYWORKERS_REDIS__NAMESPACE where it enqueues"
    )
    if path is not None:
        fix = f'write Worker(config="{path}"), or set PYWORKERS_CONFIG={path} where it enqueues'
    return _judge_places(elsewhere, server, fix)


def judge_jobs(elsewhere: Mapping[str, str], server: Mapping[str, str], path: Path | None) -> list[Finding]:
    """Findings if the application, in its jobs, enqueues to another Redis than the server's.

    Arguments as in ``judge_producers``. The two are equal unless the code names a URL or a namespace.
    None for an ``error``: the jobs may enqueue nothing.
    """
    if "error" in elsewhere:
        return []
    instead = "leave url and namespace out of Worker(…)"
    if path is not None:
        instead = f'write Worker(config="{path}") instead of url and namespace'
    return _judge_places(elsewhere, server, f"{instead}, or start the server with the same ones")


def _judge_places(elsewhere: Mapping[str, str], server: Mapping[str, str], fix: str) -> list[Finding]:
    if "error" in elsewhere:
        return [Finding("producers", f"the application cannot enqueue: {elsewhere['error']}", fix)]
    if _place(elsewhere) == _place(server):
        return []
    message = (
        f"the application enqueues to {_shown(elsewhere)}, and the server takes jobs from {_shown(server)}"
    )
    return [Finding("producers", message, fix)]


def _place(redis: Mapping[str, str]) -> tuple[object, ...]:
    return place(socket_url(redis["url"])), redis["namespace"]


def _shown(redis: Mapping[str, str]) -> str:
    namespace = f"the namespace {redis['namespace']!r}" if redis["namespace"] else "no namespace"
    return f"{mask_url(redis['url'])} with {namespace}"


def _version(info: Mapping[str, str]) -> Finding | None:
    version = info.get("redis_version", "0")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers >= OLDEST:
        return None
    return Finding("version", f"Redis {version} is too old", "upgrade to Redis 6.2 or newer, or to Valkey")


def _role(info: Mapping[str, str]) -> Finding | None:
    if info.get("role", "master") == "master":
        return None
    return Finding("role", "this server is a replica and takes no writes", "name the primary in redis.url")


def _eviction(info: Mapping[str, str], redis_cli: str) -> Finding | None:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return None
    message = f"maxmemory-policy is {policy}: Redis may evict jobs when its memory is full"
    return Finding("eviction", message, f"{redis_cli} CONFIG SET maxmemory-policy noeviction")


def _memory(info: Mapping[str, str]) -> Finding | None:
    used, most = (float(info.get(name, "0")) for name in ("used_memory", "maxmemory"))
    if not most or used < _MOST_MEMORY * most:
        return None
    message = f"{used / most:.0%} of maxmemory is used: when its memory is full, Redis takes no jobs"
    return Finding("memory", message, "raise maxmemory, or remove jobs: pyworkers queues shows where")


def _persistence(info: Mapping[str, str], save: str | None, redis_cli: str) -> Finding | None:
    if info.get("aof_enabled") == "1":
        return None
    lost = "everything" if save == "" else "everything since the last snapshot"
    message = f"the append-only file is off: a crash of Redis loses {lost}"
    fix = f"{redis_cli} CONFIG SET appendonly yes"
    return Finding("persistence", message, fix, advice=save != "")


def _replication(info: Mapping[str, str], redis_cli: str) -> Finding | None:
    # The INFO of Redis and Valkey has this field if both settings are above 0.
    if "min_slaves_good_slaves" in info:
        return None
    message = (
        "min-replicas-to-write is 0: in a failover, this primary accepts jobs that no replica gets, "
        "and they are lost"
    )
    fix = f"{redis_cli} CONFIG SET min-replicas-to-write 1, and the same in redis.conf of all its servers"
    return Finding("replication", message, fix, advice=True)


def _clock(offset_s: float) -> Finding | None:
    if abs(offset_s) <= MOST_OFFSET_S:
        return None
    where = "ahead of" if offset_s > 0 else "behind"
    message = f"the clock of this host is {abs(offset_s):.1f} s {where} the clock of Redis"
    return Finding("clock", message, "synchronise both clocks, e.g. with chrony")
