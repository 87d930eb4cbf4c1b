"""ACL: the Redis keys and commands that each role needs, for ``pyworkers acl``.

Pure. A key that is added to ``keys.py`` gets its row here, with the commands on it in each role, those inside
scripts included. A test watches a server with MONITOR, and fails for a right that is missing or not needed.

From Redis 7 on, each kind of key has a selector, with its own commands. Redis 6.2 has none: there, each
command is granted on each key of the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from pyworkers.protocol.keys import Keys, hash_tag, literal, slot_key


class Role(Enum):
    """The work of a Redis user: run jobs, enqueue them, administer, or only read."""

    WORKER = "worker"
    CLIENT = "client"
    ADMIN = "admin"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class Grant:
    """One kind of key, as the glob of its name without the namespace, and the commands on it by role.

    An empty ``key`` is for commands without a key. A worker has a client's rights too, because its jobs may
    enqueue; an administrator has a reader's.
    """

    key: str
    worker: str = ""
    client: str = ""
    admin: str = ""
    read_only: str = ""

    def commands(self, role: Role) -> set[str]:
        """The commands of a role, in lower case; a subcommand as ``client|id``."""
        words = {
            Role.WORKER: (self.worker, self.client),
            Role.CLIENT: (self.client,),
            Role.ADMIN: (self.admin, self.read_only),
            Role.READ_ONLY: (self.read_only,),
        }[role]
        return set(" ".join(words).split())


class Version(Enum):
    """The oldest Redis that reads a line."""

    SIX = "6.2"
    SEVEN = "7.0"


_PLAIN = Keys()
# hostname:pid:nonce, also followed by -signals, :work or :workers.
_IDENTITY = "*:[0-9]*:" + "[0-9a-f]" * 6 + "*"
# The others of ours: not the secret of the dashboard and its sessions, which begin with "web".
_OTHERS = "pyworkers:[^w]*"
_SCRIPTS = {"eval", "evalsha"}
_READING = {
    "exists", "get", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "hvals", "lindex",
    "llen", "lpos", "lrange", "mget", "pttl", "scard", "sismember", "smembers", "sscan", "type", "xrange",
    "xread", "xrevrange", "zcard", "zcount", "zmscore", "zrange", "zrangebyscore", "zrank", "zrevrange",
    "zscan", "zscore",
}  # fmt: skip
# Commands on keys of two kinds, in one selector.
_ACROSS: tuple[tuple[Role, str, tuple[str, ...]], ...] = (
    (Role.WORKER, "watch", (_PLAIN.queue("*"), _OTHERS)),
    (Role.WORKER, "exists", (_PLAIN.schedule, _PLAIN.retry, _PLAIN.goretry, _PLAIN.dead, _OTHERS)),
    (Role.ADMIN, "rename", (_PLAIN.queue("*"), _PLAIN.schedule, _PLAIN.retry, _PLAIN.dead, _OTHERS)),
)

GRANTS: tuple[Grant, ...] = (
    # eval and evalsha run the scripts; client id and client unblock end a blocking move at a stop; client
    # tracking makes Redis announce changes, for which a server polls otherwise; watch and unwatch are for
    # large jobs, which pass through a script otherwise; scan, which returns the names of all keys, finds the
    # in-progress lists of Go processes, by a worker before it releases what other programs have deleted.
    Grant(
        "",
        worker="eval evalsha info time client|id client|tracking client|unblock watch unwatch scan",
        client="multi exec eval evalsha time",
        admin="multi exec eval evalsha",
        read_only="info time scan",
    ),
    Grant(
        _PLAIN.queues,
        worker="sadd smembers sscan type",
        client="sadd type",
        admin="sadd srem type",
        read_only="smembers",
    ),
    Grant(
        _PLAIN.queue("*"),  # in-progress lists included
        worker="blmove brpoplpush rpoplpush lrem rpush lpush lpop lindex lrange ltrim llen exists type "
        "lpos lset",
        client="lpush llen type",
        admin="lpush lrem lset type rename rpush",
        read_only="exists llen lindex lrange lpos type",
    ),
    Grant(
        _PLAIN.schedule,
        worker="zadd zrem zremrangebyscore zrange zrangebyscore zmscore zscan zcard type",
        client="zadd zrem zrangebyscore type",
        admin="zadd zrem zremrangebyscore type rename zrangebyscore",
        read_only="zcard zcount zrange zrevrange zrangebyscore zrank zscore zscan type",
    ),
    Grant(
        _PLAIN.retry,
        worker="zadd zrem zremrangebyscore zrange zrangebyscore zmscore zscan zcard type",
        admin="zadd zrem type rename",
        read_only="zcard zcount zrange zrevrange zrangebyscore zrank zscore zscan type",
    ),
    Grant(_PLAIN.goretry, worker="zrem zremrangebyscore zrange zrangebyscore zmscore zscan zcard type"),
    Grant(
        _PLAIN.dead,
        worker="zadd zremrangebyscore zremrangebyrank zscan zcard zrange type",
        admin="zadd zrem zremrangebyscore zremrangebyrank type rename",
        read_only="zcard zcount zrange zrevrange zrangebyscore zrank zscore zscan type",
    ),
    Grant(_PLAIN.paused, worker="smembers sismember sadd", admin="sadd srem", read_only="smembers"),
    Grant("stat:*", worker="incrby expire get", admin="incr expire", read_only="get mget"),
    Grant(_PLAIN.processes, worker="sadd srem sscan type", read_only="scard sscan sismember"),
    Grant(_PLAIN.process_cleanup, worker="set"),
    Grant(
        _IDENTITY,
        worker="exists hset hget hmget hvals type expire rpop llen unlink",
        admin="lpush expire",
        read_only="hget hmget hgetall",
    ),
    Grant(
        _PLAIN.iteration("*"),
        worker="hexists type unlink del hset expire",
        client="hmget",
        admin="hsetnx expire exists hgetall hset pexpire pttl unlink del",
    ),
    Grant(_PLAIN.executions("*"), worker="hincrby expire", read_only="hgetall hmget"),
    Grant(_PLAIN.histogram("*-[0-9][0-9]-[0-9][0-9]:[0-9]*"), worker="bitfield expire"),
    Grant(_PLAIN.histogram("h|*"), worker="bitfield expire", read_only="mget"),
    Grant(_PLAIN.marks("[0-9]*"), admin="hsetnx expire", read_only="hgetall"),
    Grant(_PLAIN.deploy_lock("*"), admin="set"),
    Grant(_PLAIN.unique("*"), client="get set del"),
    Grant(
        _PLAIN.locks,
        worker="sscan srem exists",
        client="type scard sadd",
        admin="type scard sadd",
        read_only="sscan exists",
    ),
    Grant(_PLAIN.awaited, worker="exists zscan zrem zremrangebyscore", client="zadd expire", admin="zmscore"),
    Grant(
        _PLAIN.sweep("*"),
        worker="exists get set pttl hset hsetnx hget hdel hlen hscan expire",
    ),
    Grant(
        _PLAIN.batches,
        worker="exists zrange",
        client="type zadd zrangebyscore zrem",
        admin="zrem",
        read_only="zrange",
    ),
    Grant(
        _PLAIN.batch("*"),
        worker="sadd hset hget hmget hincrby hexists expire srem scard smembers lrange del unlink",
        client="type sadd hset hget hmget hincrby hexists hgetall expire exists srem scard smembers rpush "
        "lrange del unlink",
        admin="hexists hget hmget hset hincrby expire sadd srem scard sismember smembers lrange del unlink",
        read_only="hgetall hget scard sismember sscan lrange",
    ),
    Grant(
        _PLAIN.moving("*"),
        worker="lindex llen lrange",
        admin="exists lrange lrem rpush type unlink",
        read_only="llen lrange",
    ),
    Grant(
        _PLAIN.wire,
        worker="zadd zremrangebyscore expire",
        client="zrangebyscore",
        read_only="zrangebyscore",
    ),
    Grant(_PLAIN.audit, admin="lpush ltrim", read_only="llen lrange"),
    Grant(
        _PLAIN.job("*"),
        client="type hset expire hmget hgetall",
        admin="exists hgetall hset pexpire pttl unlink",
        read_only="hmget",
    ),
    Grant(
        _PLAIN.result("*"), client="xrange xread xadd expire", admin="xadd expire", read_only="xrange xread"
    ),
    Grant(
        _PLAIN.log("*"),
        worker="xadd xdel xrevrange exists expire",
        client="xrange",
        admin="xadd xdel xrevrange exists expire",
        read_only="xrange",
    ),
    Grant(_PLAIN.deletions, admin="hgetall hset hdel expire"),
    Grant(_PLAIN.deletion("*"), admin="hkeys hmget hset hdel expire unlink"),
    Grant(_PLAIN.finished, worker="sadd ttl expire", read_only="smembers"),
    Grant(_PLAIN.finished_jobs("*"), worker="xadd xtrim expire", read_only="xrevrange"),
    Grant(_PLAIN.busy("*"), worker="set mget unlink"),
    Grant(_PLAIN.own("gauges:*"), worker="xadd xrange xrevrange expire", read_only="xrange"),
    Grant(_PLAIN.own("cleared:*"), admin="expire type llen lrange zrange zcard unlink"),
    Grant(_PLAIN.watched, worker="exists get", admin="set", read_only="exists"),
    Grant(
        _PLAIN.task("*"),
        admin="hset hsetnx hget hgetall expire set exists del unlink",
        read_only="hgetall exists",
    ),
    Grant(_PLAIN.web_secret, admin="set get"),
    Grant(_PLAIN.web_ended("*"), admin="set exists"),
    Grant(_PLAIN.web_muted("*"), admin="set get del", read_only="get"),
    Grant(_PLAIN.alarming, admin="set get ttl", read_only="get"),
    Grant(_PLAIN.alarms, admin="hset hdel hgetall", read_only="hgetall"),
    Grant(_PLAIN.alarms_sent, admin="lpush ltrim lrange", read_only="lrange"),
    Grant(_PLAIN.enqueued("*"), admin="hmget hset expire"),
    Grant(
        _OTHERS,
        worker="set get del exists pttl hset hget hdel hexists hgetall hsetnx incrby expire pexpire smembers "
        "sismember zcard zrange zrem hincrby srem type xadd hkeys zadd zcount zscore "
        "zrangebyscore zremrangebyscore hmget hlen bitfield",
        admin="incr incrby set del hset hsetnx hget hlen hdel hexists sadd srem expire zadd zrem "
        "zremrangebyscore unlink xadd type zcard zcount zrange zrangebyscore",
        read_only="hgetall hkeys exists get mget pttl smembers zcard zcount hget hmget hlen hscan zrange "
        "zscore",
    ),
)


# With a hash tag, a namespace may be on a cluster: its users ask the nodes for the slot.
_OF_CLUSTER: tuple[Grant, ...] = (
    Grant("", **dict.fromkeys(("worker", "client", "read_only"), "asking cluster|nodes cluster|slots")),
    Grant(slot_key(""), **dict.fromkeys(("worker", "client", "read_only"), "exists")),
)


def grants(namespace: str) -> tuple[Grant, ...]:
    """The rights on the keys of a namespace."""
    return GRANTS + _OF_CLUSTER if hash_tag(namespace) else GRANTS


def line(
    role: Role, namespace: str, user: str, version: Version = Version.SEVEN, *, database: int = 0
) -> str:
    """The ACL SETUSER command, with CHANGE-ME for the password."""
    words = ["ACL SETUSER", user, "reset", "on", ">CHANGE-ME"]
    if database:
        # A connection begins in the database 0.
        words.append("+select")
    if version is Version.SIX:
        words += patterns(role, namespace)
        words += (f"+{command}" for command in commands(role, namespace))
    else:
        words += (f"+{command}" for command in _keyless(role, namespace))
        words += selectors(role, namespace)
    return " ".join(words)


def selectors(role: Role, namespace: str) -> Iterator[str]:
    """The rights on each kind of key; ``%R~``: to read it alone."""
    prefix = literal(namespace)
    by_commands: dict[frozenset[str], list[str]] = {}
    for grant in grants(namespace):
        if grant.key and grant.commands(role):
            by_commands.setdefault(frozenset(grant.commands(role)), []).append(f"{prefix}{grant.key}")
    # A script names its keys, whose rights are checked for each command in it.
    if scripts := _SCRIPTS & set(commands(role)):
        yield _selector(scripts, patterns(role, namespace))
    for names, globs in by_commands.items():
        sign = "%R~" if names <= _READING else "~"
        yield _selector(names, [f"{sign}{glob}" for glob in globs])
    for of, command, kinds in _ACROSS:
        if of is role:
            yield _selector({command}, [f"~{prefix}{glob}" for glob in kinds])


def _selector(names: Iterable[str], globs: Iterable[str]) -> str:
    return f"({' '.join([*globs, *(f'+{name}' for name in sorted(names))])})"


def _keyless(role: Role, namespace: str) -> list[str]:
    """The commands without a key, sorted."""
    found = set().union(*(grant.commands(role) for grant in grants(namespace) if not grant.key))
    return sorted(found - _SCRIPTS)


def left_open(role: Role, namespace: str, version: Version) -> list[str]:
    """What such a user can do besides its work, in sentences."""
    found = []
    if not namespace and role is not Role.CLIENT:
        found.append(
            f"Without a namespace, keys of other programs that look like ours are open to it: those named "
            f"{_IDENTITY}, for example session:42:abcdef. Set a namespace, or use a separate Redis."
        )
    if version is Version.SIX:
        found.append(
            "Redis 6.2 grants each of these commands on each of these keys: "
            + _OPEN_IN_SIX[role]
            + " Redis 7 keeps them apart: pyworkers acl --oldest 7.0."
        )
    if _SCRIPTS & set(commands(role)):
        found.append("It may send scripts, and a script that does not end blocks Redis for all clients.")
    return found


_OPEN_IN_SIX = {
    Role.CLIENT: "it can read and delete waiting and running jobs, locks and results.",
    Role.WORKER: "it can write and delete each key of its programs.",
    Role.ADMIN: "it can write and delete each key of its programs.",
    Role.READ_ONLY: "it can read each of these keys in any way, and write none.",
}


def patterns(role: Role, namespace: str) -> Iterator[str]:
    """The key patterns, as ``~glob``."""
    prefix = literal(namespace)
    for grant in grants(namespace):
        if grant.key and grant.commands(role):
            yield f"~{prefix}{grant.key}"


def commands(role: Role, namespace: str = "") -> list[str]:
    """The commands, sorted."""
    return sorted({command for grant in grants(namespace) for command in grant.commands(role)})
