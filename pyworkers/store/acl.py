"""ACL: the Redis keys and commands that each role needs, for ``pyworkers acl``.

Pure. A key that is added to ``keys.py`` gets its row here, with the commands on it in each role, those inside
scripts included. A test watches a server with MONITOR, and fails for a right that is missing or not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pyworkers.protocol.keys import Keys, literal


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


_PLAIN = Keys()
# hostname:pid:nonce, also followed by -signals, :work or :workers.
_IDENTITY = "*:[0-9]*:[0-9a-f]*"

GRANTS: tuple[Grant, ...] = (
    # eval and evalsha run the scripts; client id and client unblock end a blocking move at a stop; client
    # tracking makes Redis announce changes, for which a server polls otherwise; watch and unwatch are for
    # large jobs, which pass through a script otherwise; scan, which returns the names of all keys, finds the
    # in-progress lists of Go processes, by a worker before it releases what other programs have deleted.
    Grant(
        "",
        worker="eval evalsha info time client|id client|tracking client|unblock watch unwatch scan",
        client="multi exec eval evalsha time",
        admin="multi exec",
        read_only="eval evalsha info time scan",
    ),
    Grant(
        _PLAIN.queues,
        worker="sadd smembers type",
        client="sadd type",
        admin="sadd srem",
        read_only="smembers",
    ),
    Grant(
        _PLAIN.queue("*"),  # in-progress lists included
        worker="blmove brpoplpush rpoplpush lrem rpush lpush lpop lindex lrange ltrim llen exists type "
        "lpos lset",
        client="lpush llen type",
        admin="lpush lrem lset type rename rpush",
        read_only="llen lindex lrange lpos type",
    ),
    Grant(
        _PLAIN.schedule,
        worker="zadd zrem zremrangebyscore zrange zrangebyscore zmscore zscan zcard type",
        client="zadd zrem zrangebyscore type",
        admin="zadd zrem type rename zrangebyscore",
        read_only="zcard zcount zrange zrevrange zrangebyscore zrank zscore zscan type",
    ),
    Grant(
        _PLAIN.retry,
        worker="zadd zrem zremrangebyscore zrange zrangebyscore zmscore zscan zcard type",
        admin="zrem type rename",
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
    Grant("stat:*", worker="incrby expire", admin="incr expire", read_only="get mget"),
    Grant(_PLAIN.processes, worker="sadd srem sscan", read_only="scard sscan sismember"),
    Grant(_PLAIN.process_cleanup, worker="set"),
    Grant(
        _IDENTITY,
        worker="hset hget hmget hvals type expire rpop llen unlink",
        admin="lpush expire",
        read_only="hmget hgetall",
    ),
    Grant(
        _PLAIN.iteration("*"),
        worker="hexists type unlink del hset expire",
        client="hmget",
        admin="hsetnx expire exists",
    ),
    Grant(_PLAIN.executions("*"), worker="hincrby expire", read_only="hgetall hmget"),
    Grant(_PLAIN.histogram("*-[0-9][0-9]-[0-9][0-9]:[0-9]*"), worker="bitfield expire"),
    Grant(_PLAIN.histogram("h|*"), worker="bitfield expire", read_only="mget"),
    Grant(_PLAIN.unique("*"), client="get set del"),
    Grant(
        _PLAIN.locks,
        worker="sscan srem exists",
        client="type scard sadd",
        read_only="sscan exists",
    ),
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
        client="sadd hset hget hmget hincrby hexists hgetall expire exists srem scard smembers rpush lrange "
        "del unlink",
        admin="hexists hget hmget hset hincrby expire sadd srem scard smembers lrange del unlink",
        read_only="hgetall scard sscan",
    ),
    Grant(_PLAIN.audit, admin="lpush ltrim", read_only="llen lrange"),
    Grant(_PLAIN.job("*"), client="hset expire hmget hgetall", read_only="hmget"),
    Grant(
        _PLAIN.result("*"), client="xrange xread xadd expire", admin="xadd expire", read_only="xrange xread"
    ),
    Grant(
        "pyworkers:*",
        worker="set get del exists pttl hset hget hdel hexists hgetall hsetnx incrby expire pexpire smembers "
        "sismember zcard zrange zrem hincrby srem type xadd hkeys zadd zcount zscore "
        "zrangebyscore zremrangebyscore hmget hlen bitfield",
        admin="set del hset hget hlen hdel hexists sadd srem expire zadd zrem zremrangebyscore unlink "
        "xadd type zcard zcount zrange zrangebyscore",
        read_only="hgetall hkeys exists get mget pttl smembers zcard zcount hget",
    ),
)


def line(role: Role, namespace: str, user: str) -> str:
    """The ACL SETUSER command, with CHANGE-ME for the password."""
    words = ["ACL SETUSER", user, "reset", "on", ">CHANGE-ME", *patterns(role, namespace)]
    words += (f"+{command}" for command in commands(role))
    return " ".join(words)


def patterns(role: Role, namespace: str) -> Iterator[str]:
    """The key patterns, as ``~glob``."""
    prefix = literal(namespace)
    for grant in GRANTS:
        if grant.key and grant.commands(role):
            yield f"~{prefix}{grant.key}"


def commands(role: Role) -> list[str]:
    """The commands, sorted."""
    return sorted({command for grant in GRANTS for command in grant.commands(role)})
