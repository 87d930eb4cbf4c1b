"""Batches: the vectors of batch.lua, and of the jobs that follow steps of a chain and members of a group.

A case of ``batches`` has ``steps``: calls of a script with their replies, and commands with theirs, on an
empty Redis. A case of ``following`` has the field ``then`` of a step, its result, and the jobs that are
pushed at its end; or a job that waits in a batch as it is written, and as it is pushed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from contrib.clients.wire.envelopes import BATCH, NOW, call, job_of
from contrib.clients.wire.pushes import PREFIX, texts
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow import filling
from pyworkers.protocol.flow.batch import following
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow import batches, conditions

_KEYS = Keys(PREFIX)
_KEY = _KEYS.batch(BATCH)
_INNER = "ba7c40123456789abcdef013"
_HOLD = "401d0123456789abcdef0123"


def _waiting(job_class: str, jid: str) -> str:
    """A callback as a batch keeps it."""
    return (
        f'done {{"queue":"done","class":"{job_class}","args":["{BATCH}"],"jid":"{jid}","created_at":{NOW}}}'
    )


_FINISH = _waiting("finish", "f1715401234567890abcdef1")
_REPORT = _waiting("report", "f1715401234567890abcdef2")
_PUBLISH = {
    "queue": "done",
    "class": "publish",
    "args": [None],
    "jid": "f1",
    "created_at": 1.5,
    "fill": {"RESULT": [[0]]},
}
_FIELDS = {"answer": "1", "description": "import 7"}


def _jid(number: int) -> str:
    return f"c0ffee0123456789abcde{number:03x}"


def _member(number: int, **changes: Any) -> PushedJob:
    return job_of({**call("a member of a batch"), "jid": _jid(number), **changes})


def _enlist(
    reply: str,
    mode: str,
    members: Sequence[str] = (),
    jobs: Sequence[PushedJob] = (),
    plan: BatchPlan | None = None,
    **holds: str,
) -> dict[str, Any]:
    number, *rest = batches.call_of(
        _KEYS, plan or BatchPlan(BATCH, _HOLD, dict(_FIELDS)), mode, members, jobs, **holds
    )
    return {"script": "batch.lua", "keys": texts(rest[:number]), "argv": texts(rest[number:]), "reply": reply}


def _push(reply: list[Any], *jobs: PushedJob) -> dict[str, Any]:
    names, args = conditions.call_of(_KEYS, jobs)
    return {"script": "push.lua", "keys": names, "argv": texts([*args, PREFIX]), "reply": reply}


def _seen(*command: str, reply: Any) -> dict[str, Any]:
    return {"command": list(command), "reply": reply}


def _callback() -> BatchPlan:
    return BatchPlan(BATCH, _HOLD, {**_FIELDS, "on_success": _FINISH, "on_complete": _REPORT})


def _chain() -> list[dict[str, Any]]:
    first, second = _member(1), _member(2)
    step = json.loads(second.payload)
    step.pop("enqueued_at")
    step |= {"batch_index": 0, "args": [None, "hello"], "fill": {"RESULT": [[0]]}}
    payload = {**json.loads(first.payload), "then": {"v": 2, "steps": [step]}}
    job = first._replace(payload=json.dumps(payload, separators=(",", ":")).encode())
    plan = BatchPlan(BATCH, _HOLD, {"answer": "1", "kind": "chain"})
    return [
        _enlist("ok", "create", [first.jid, second.jid], [job], plan),
        _seen("HMGET", _KEY, "kind", "total", "done", reply=["chain", "2", "0"]),
        _seen("LLEN", _KEYS.queue("mail"), reply=1),
    ]


def _group() -> list[dict[str, Any]]:
    plan = BatchPlan(
        BATCH,
        _HOLD,
        {"answer": "1", "kind": "group", "size": "2"},
        then=[filling.ready(_PUBLISH)],
    )
    jobs = [_member(1), _member(2)]
    jobs = [job._replace(payload=job.payload[:-1] + b',"batch_index":%d}' % n) for n, job in enumerate(jobs)]
    return [
        _enlist("ok", "create", [job.jid for job in jobs], jobs, plan),
        _seen("LLEN", _KEY + ":then", reply=1),
        _seen("HMGET", _KEY, "kind", "size", "total", reply=["group", "2", "2"]),
    ]


def _nested() -> list[dict[str, Any]]:
    inner = BatchPlan(_INNER, _HOLD, {"answer": "1", "parent": f" {BATCH}"})
    job = job_of({**call("a member of a batch"), "jid": _jid(1), "batch": _INNER})
    return [
        _enlist("ok", "create", hold=_HOLD),
        _enlist("ok", "create", [job.jid], [job], inner),
        _enlist("ok", "add", release=_HOLD),
        _seen("SMEMBERS", _KEY + ":members", reply=[_INNER]),
        _seen("SMEMBERS", _KEYS.batch(_INNER) + ":members", reply=[_jid(1)]),
    ]


def cases() -> list[dict[str, Any]]:
    """All of batch.lua."""
    later = _member(2, at=NOW + 1e10)
    steps: dict[str, list[dict[str, Any]]] = {
        "open it, add members, close it": [
            _enlist("ok", "create", hold=_HOLD),
            _push(["pushed", ""], _member(1)),
            _enlist("ok", "add", [_jid(2)], [later]),
            _seen("HMGET", _KEY, "open", "total", "done", "complete_at", reply=["1", "2", "0", None]),
            _enlist("ok", "add", release=_HOLD),
            _seen("HMGET", _KEY, "open", "total", "done", "description", reply=["0", "2", "0", "import 7"]),
            _seen("SMEMBERS", _KEY + ":members", reply=[_jid(1), _jid(2)]),
            _seen("LLEN", _KEYS.queue("mail"), reply=1),
            _seen("ZCARD", _KEYS.schedule, reply=1),
        ],
        "in one call": [
            _enlist("ok", "create", [_jid(1), _jid(3)], [_member(1), _member(3, queue="slow")]),
            _seen("HMGET", _KEY, "open", "total", reply=["0", "2"]),
            _seen("SMEMBERS", _KEYS.queues, reply=["mail", "slow"]),
        ],
        "an empty batch succeeds at once": [
            _enlist("ok", "create", plan=_callback()),
            _seen("HEXISTS", _KEY, "success_at", reply=1),
            _seen("LLEN", _KEYS.queue("done"), reply=2),
            _seen("XLEN", _KEYS.result(BATCH), reply=1),
            _enlist("ended", "open", hold=_HOLD),
            _push(["batch", 1, "ended"], _member(1)),
        ],
        "no callback fires while it is open": [
            _enlist("ok", "create", plan=_callback(), hold=_HOLD),
            _seen("EXISTS", _KEYS.queue("done"), reply=0),
            _enlist("ok", "add", release=_HOLD),
            _seen("LLEN", _KEYS.queue("done"), reply=2),
        ],
        "open it again": [
            _enlist("ok", "create", [_jid(1)], [_member(1)]),
            _enlist("ok", "open", [_jid(3)], [_member(3)], hold=_HOLD),
            _enlist("ok", "add", release=_HOLD),
            _seen("HGET", _KEY, "total", reply="2"),
        ],
        "with tags": [
            _enlist("ok", "create", plan=BatchPlan(BATCH, _HOLD, {**_FIELDS, "tags": '["tenant:7","é"]'})),
            _seen("HGET", _KEY, "tags", reply='["tenant:7","é"]'),
        ],
        "an unknown batch": [
            _enlist("unknown", "open", hold=_HOLD),
            _enlist("unknown", "add", [_jid(1)], [_member(1)]),
        ],
        "a batch that exists": [_enlist("ok", "create", hold=_HOLD), _enlist("exists", "create", hold=_HOLD)],
        "delete it": [
            _enlist("ok", "create", hold=_HOLD),
            _enlist("ok", "delete"),
            _seen("EXISTS", _KEY, _KEY + ":members", _KEYS.batches, reply=0),
            _enlist("unknown", "delete"),
        ],
        "a chain": _chain(),
        "a group": _group(),
        "a batch inside a batch": _nested(),
        "a parent that is unknown": [
            _enlist("unknown", "create", plan=BatchPlan(_INNER, _HOLD, {"parent": f" {BATCH}"}))
        ],
    }
    return [{"name": name, "namespace": PREFIX, "steps": each} for name, each in steps.items()]


def following_cases() -> list[dict[str, Any]]:
    """All of the jobs that follow."""
    step = {
        "queue": "mail",
        "class": "Add",
        "args": [None, "x"],
        "jid": "f1",
        "batch": BATCH,
        "created_at": NOW,
    }
    thens: dict[str, tuple[Any, str]] = {
        "one step": ({"v": 2, "steps": [{**step, "fill": {"RESULT": [[0]]}}]}, "7"),
        "a step that takes nothing": ({"v": 2, "steps": [step]}, '{"a":1}'),
        "a result at two places": (
            {
                "v": 2,
                "steps": [{**step, "args": [[None], {"n": None}], "fill": {"RESULT": [[0, 0], [1, "n"]]}}],
            },
            '"a"',
        ),
        "two steps": (
            {"v": 2, "steps": [{**step, "fill": {"RESULT": [[0]]}}, {**step, "jid": "f2"}]},
            "null",
        ),
        "a group": (
            {"v": 2, "steps": [[{**step, "batch_index": 0}, {**step, "jid": "f2", "batch_index": 1}]]},
            "1",
        ),
        "it expires as long after it is due": ({"v": 2, "steps": [{**step, "expiry": NOW + 60}]}, "1"),
        "another version": ({"v": 3, "steps": [step]}, "1"),
        "no steps": ({"v": 2, "steps": []}, "1"),
    }
    found: list[dict[str, Any]] = []
    for name, (then, result) in thens.items():
        pushes = [
            {"queue": push.queue, "job": push.payload.decode()}
            for push in following(then, result.encode(), NOW + 9)
        ]
        found.append({"name": name, "then": then, "result": result, "now": NOW + 9, "pushes": pushes})
    marked = {**step, "args": [None, '{"pyworkers":"RESULTS"}'], "fill": {"RESULT": [[0]]}}
    for name, job in {
        "a job after a group": {**step, "fill": {"RESULT": [[0]]}},
        "a text like the mark": marked,
    }.items():
        ready = filling.ready(job)
        queue, payload = filling.filled(ready, "[1,null]")
        found.append(
            {"name": name, "step": job, "ready": ready, "result": "[1,null]", "queue": queue, "job": payload}
        )
    return found
