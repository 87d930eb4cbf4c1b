"""Pushes: the vectors of push.lua: what it gets for given enqueue calls, and what it answers.

``before`` are commands that prepare an empty Redis, ``enqueue`` the calls of one push, ``keys`` and ``argv``
what the script gets for them (the jobs in it are compared as those of ``envelopes``), ``reply`` its answer,
``after`` commands with their replies. With ``plain``, no script is needed: the commands of one transaction.
``error`` is the beginning of an error reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from contrib.clients.wire.envelopes import BATCH, JID, NOW, call, job_of
from pyworkers.protocol.flow.unique import key_of
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow.conditions import call_of

PREFIX = "app:"
_KEYS = Keys(PREFIX)
_OTHER = "c0ffee0123456789abcdef99"
_KEY = key_of("Add", "mail", [7, "hello"], None, "args")
_LOCK, _SCORE = _KEYS.unique(_KEY), _KEYS.unique(_KEY) + ":at"
_JOB, _QUEUE, _MEMBERS = _KEYS.job(JID), _KEYS.queue("mail"), _KEYS.batch(BATCH) + ":members"
_OPEN = ["HSET", _KEYS.batch(BATCH), "open", "1", "total", "1", "done", "0"]
_HELD = ["SET", _LOCK, _OTHER]
_LATER = NOW + 10_000_000_000


class _Push(NamedTuple):
    """The calls, by their names in ``envelopes`` and what differs; the answer, and what is in Redis then."""

    calls: list[tuple[str, dict[str, Any]]]
    reply: list[Any]
    after: list[tuple[list[str], Any]]
    before: list[list[str]] = []  # noqa: RUF012  # never changed


def _one(name: str, **changes: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(name, changes)]


_UNTIL = {"at": _LATER, "options": {"unique_for": 60, "on_duplicate": "replace", "track": 60}}
_SCHEDULED = '{"queue":"mail","class":"Add","args":[7,"hello"],"jid":"' + _OTHER + '","track":60}'
_REPLACING: list[list[str]] = [
    ["SET", _LOCK, _OTHER],
    ["SET", _SCORE, "1795225300.5"],
    ["ZADD", _KEYS.schedule, "1795225300.5", _SCHEDULED],
]
_CASES: dict[str, _Push] = {
    "a tracked job": _Push(
        _one("tracked"),
        ["pushed", ""],
        [
            (["HGETALL", _JOB], {"state": "waiting", "queue": "mail", "attempt": "0"}),
            (["LLEN", _QUEUE], 1),
            (["SMEMBERS", _KEYS.queues], ["mail"]),
            (["EXISTS", _KEYS.locks], 0),
        ],
    ),
    "a tracked job with history": _Push(
        _one("tracked with history"), ["pushed", ""], [(["HEXISTS", _JOB, "job"], 1)]
    ),
    "a tracked job for later": _Push(
        _one("tracked, for later"),
        ["pushed", ""],
        [
            (["HGET", _JOB, "state"], "scheduled"),
            (["ZCARD", _KEYS.schedule], 1),
            (["EXISTS", _QUEUE, _KEYS.queues], 0),
        ],
    ),
    "a unique job": _Push(
        _one("unique"),
        ["pushed", ""],
        [(["GET", _LOCK], JID), (["SMEMBERS", _KEYS.locks], [f"unique:{_KEY}"]), (["EXISTS", _SCORE], 0)],
    ),
    "a lock of less than a millisecond": _Push(
        _one("unique for less than a millisecond"), ["pushed", ""], []
    ),
    "a duplicate": _Push(
        _one("unique"), ["pushed", _OTHER], [(["GET", _LOCK], _OTHER), (["LLEN", _QUEUE], 0)], [_HELD]
    ),
    "a duplicate that is an error": _Push(
        _one("unique until the start"), ["duplicate", 1, _OTHER], [(["LLEN", _QUEUE], 0)], [_HELD]
    ),
    "the same job again": _Push(
        _one("unique"), ["pushed", JID], [(["LLEN", _QUEUE], 0)], [["SET", _LOCK, JID]]
    ),
    "a unique job that ends by time": _Push(
        _one("unique by time"),
        ["pushed", ""],
        [(["EXISTS", _KEYS.locks], 0), (["GET", _LOCK + "|expiry"], JID)],
    ),
    "a job that may be replaced": _Push(
        _one("unique, for later", at=_LATER),
        ["pushed", ""],
        [(["ZCARD", _KEYS.schedule], 1), (["EXISTS", _SCORE], 1)],
    ),
    "a job that replaces another one": _Push(
        _one("unique, for later", **_UNTIL),
        ["pushed", ""],
        [
            (["GET", _LOCK], JID),
            (["ZCARD", _KEYS.schedule], 1),
            (["HGET", _KEYS.job(_OTHER), "state"], "cancelled"),
            (["XLEN", _KEYS.result(_OTHER)], 1),
            (["HGET", _JOB, "state"], "scheduled"),
        ],
        _REPLACING,
    ),
    "a waiting job is not replaced": _Push(
        _one("unique, for later"), ["pushed", _OTHER], [(["EXISTS", _KEYS.schedule], 0)], [_HELD]
    ),
    "a queue with room": _Push(_one("a full queue"), ["pushed", ""], [(["LLEN", _QUEUE], 1)]),
    "a full queue": _Push(
        _one("a full queue", options={"max_waiting": 2}),
        ["full", 1, 1],
        [(["LLEN", _QUEUE], 2), (["EXISTS", _KEYS.queues], 0)],
        [["LPUSH", _QUEUE, "{}", "{}"]],
    ),
    "more jobs than the queue takes": _Push(
        [
            ("a full queue", {"options": {"max_waiting": 2}, "jid": f"c0ffee0123456789abcdef{n:02}"})
            for n in (2, 3, 4)
        ],
        ["full", 2, -1],
        [(["LLEN", _QUEUE], 1), (["EXISTS", _KEYS.queues], 0)],
        [["LPUSH", _QUEUE, "{}"]],
    ),
    "a full queue for a later job": _Push(
        _one("a full queue", options={"max_waiting": 1}, at=_LATER),
        ["pushed", ""],
        [(["ZCARD", _KEYS.schedule], 1)],
        [["LPUSH", _QUEUE, "{}"]],
    ),
    "a member of a batch": _Push(
        _one("a member of a batch"),
        ["pushed", ""],
        [
            (["SMEMBERS", _MEMBERS], [JID]),
            (["HGET", _KEYS.batch(BATCH), "total"], "2"),
            (["LLEN", _QUEUE], 1),
        ],
        [_OPEN],
    ),
    "a duplicate is no member": _Push(
        _one("a member of a batch", options={"unique_for": 60}),
        ["pushed", _OTHER],
        [(["EXISTS", _MEMBERS], 0), (["HGET", _KEYS.batch(BATCH), "total"], "1")],
        [_OPEN, _HELD],
    ),
    "an unknown batch": _Push(
        _one("a member of a batch"), ["batch", 1, "unknown"], [(["EXISTS", _QUEUE], 0)]
    ),
    "a batch that has ended": _Push(
        _one("a member of a batch"),
        ["batch", 1, "ended"],
        [(["EXISTS", _QUEUE], 0)],
        [[*_OPEN, "success_at", "1795225190.5"]],
    ),
    "everything": _Push(
        _one("everything", at=_LATER),
        ["pushed", ""],
        [
            (["SMEMBERS", _MEMBERS], [JID]),
            (["GET", _LOCK], JID),
            (["ZCARD", _KEYS.schedule], 1),
            (["HGET", _JOB, "state"], "scheduled"),
        ],
        [_OPEN],
    ),
    "several jobs": _Push(
        [
            ("unique", {}),
            ("unique", {"jid": _OTHER}),
            ("tracked", {"jid": "c0ffee0123456789abcdef02", "queue": "slow"}),
            ("plain", {"jid": "c0ffee0123456789abcdef03", "queue": "slow"}),
        ],
        ["pushed", "", JID, "", ""],
        [
            (["LLEN", _QUEUE], 1),
            (["LLEN", _KEYS.queue("slow")], 2),
            (["SMEMBERS", _KEYS.queues], ["mail", "slow"]),
        ],
    ),
    "all or none": _Push(
        [("plain", {}), ("unique until the start", {"jid": "c0ffee0123456789abcdef02"})],
        ["duplicate", 2, _OTHER],
        [(["EXISTS", _QUEUE], 0)],
        [_HELD],
    ),
}
_WRONG = {
    "a status of another type": _Push(_one("tracked"), [], [(["EXISTS", _QUEUE], 0)], [["SET", _JOB, "x"]]),
    "a queue of another type": _Push(_one("tracked"), [], [(["EXISTS", _JOB], 0)], [["SET", _QUEUE, "x"]]),
}
_PLAIN = ("plain", "for later", "expiring")


def cases() -> list[dict[str, Any]]:
    """All pushes."""
    found = [
        {"name": name, **_case(push), "reply": push.reply, **_after(push)} for name, push in _CASES.items()
    ]
    found += [
        {"name": name, **_case(push), "error": "WRONGTYPE", **_after(push)} for name, push in _WRONG.items()
    ]
    return [*map(_plain, _PLAIN), *found, *_invalid(found[0])]


def _case(push: _Push) -> dict[str, Any]:
    calls = [{**call(name), **changes} for name, changes in push.calls]
    names, args = call_of(_KEYS, [job_of(one) for one in calls])
    return {
        "namespace": PREFIX,
        "before": push.before,
        "enqueue": calls,
        "keys": names,
        "argv": texts([*args, PREFIX]),
    }


def _after(push: _Push) -> dict[str, Any]:
    return {"after": [{"command": command, "reply": reply} for command, reply in push.after]}


def _plain(name: str) -> dict[str, Any]:
    about = call(name)
    job = job_of(about)
    commands = [["SADD", _KEYS.queues, job.queue], ["LPUSH", _KEYS.queue(job.queue), job.payload.decode()]]
    if job.at is not None:
        commands = [["ZADD", _KEYS.schedule, repr(job.at), job.payload.decode()]]
    return {"name": f"without a script: {name}", "namespace": PREFIX, "enqueue": [about], "plain": commands}


def _invalid(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Calls of the script with other arguments."""
    keys, argv = case["keys"], case["argv"]
    wrong: dict[str, tuple[list[str], list[str]]] = {
        "an unknown option": (keys, [*argv[:-3], "colour", "red", PREFIX]),
        "a life that is not a number": (keys, [*argv[:-2], "long", PREFIX]),
        "too many keys": ([*keys, "app:x"], argv),
        "a queue that is not listed": (keys, [*argv[:3], "2", *argv[4:]]),
        "an empty jid": (keys, [*argv[:4], "", *argv[5:]]),
        "a life with zeros in front": (keys, [*argv[:-2], "060", PREFIX]),
        "a life that is too long": (keys, [*argv[:-2], "9" * 20, PREFIX]),
        "a time that Redis does not read": (keys, [*argv[:-3], "at", " 5", PREFIX]),
        "a time that is 0 by its exponent alone": (keys, [*argv[:-3], "at", "1e-999", PREFIX]),
        "a limit of no job": (keys, [*argv[:-3], "max_waiting", "0", PREFIX]),
        "a run without a place": (keys, [*argv[:-3], "run", "[]", PREFIX]),
        "options are missing": (keys, [*argv[:-3], PREFIX]),
    }
    same = {
        "namespace": PREFIX,
        "before": [],
        "error": "ERR pyworkers push",
        "after": [{"command": ["DBSIZE"], "reply": 0}],
    }
    return [{"name": f"invalid: {name}", **same, "keys": k, "argv": a} for name, (k, a) in wrong.items()]


def texts(args: Sequence[Any]) -> list[str]:
    """The arguments as they are sent."""
    return [
        arg.decode() if isinstance(arg, bytes) else repr(arg) if isinstance(arg, float) else str(arg)
        for arg in args
    ]
