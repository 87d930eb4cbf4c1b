"""Envelopes: the vectors of enqueue calls: the job that each puts into Redis.

``enqueue`` has the call: ``args`` is a JSON text; ``now`` and ``at`` are epoch seconds; ``keys`` are those of
sealed jobs. ``payload`` is the job: the members count, and their values; their order and blanks do not. A
case with ``refused`` is an error in the caller.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from unittest.mock import patch

from contrib.clients.wire.keyed import KEYS, as_base64
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.conditions import Conditions
from pyworkers.protocol.draft import PushedJob, Writing, draft, moment
from pyworkers.protocol.flow.plans import members
from pyworkers.protocol.sealing import Keyring

NOW = 1795225197.5
JID = "c0ffee0123456789abcdef01"
BATCH = "ba7c40123456789abcdef012"
NONCE = hashlib.sha256(b"nonce").digest()[:12]

CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no arguments": {"args": "[]"},
    "all kinds of values": {
        "args": '[null,true,1,-2.5,"a\\u00e9\\u2028<\\ud83d\\ude00",[1,[2]],{"b":1,"a":{}}]'
    },
    "a large integer": {"args": "[123456789012345678901234567890]"},
    "500 levels": {"args": f"[{'[' * 500}{']' * 500}]", "options": {"unique_for": 60}},
    "retry": {"options": {"retry": 5}},
    "retry for ever or not": {"options": {"retry": True}},
    "no retry": {"options": {"retry": False}},
    "options of a failure": {
        "options": {"dead": False, "backtrace": 10, "retry_for": 86400, "retry_queue": "slow", "retry_max": 3}
    },
    "tags and a time limit": {"options": {"tags": ["a", "b"], "timeout": 30}},
    "fields of the application": {"options": {"extra": {"tenant": 7, "trace": {"id": "x"}}}},
    "for later": {"at": NOW + 300},
    "at a time that has passed": {"at": NOW - 300},
    "expiring": {"options": {"expires_in": 600}},
    "expiring, for later": {"at": NOW + 300, "options": {"expires_in": 600}},
    "tracked": {"options": {"track": 3600}},
    "tracked with history": {"options": {"track": 3600, "history": True}},
    "tracked, for later": {"at": NOW + 300.25, "options": {"track": 60.5}},
    "unique": {"options": {"unique_for": 3600}},
    "unique for less than a millisecond": {"options": {"unique_for": 0.0005}},
    "unique until the start": {
        "options": {"unique_for": 3600, "unique_until": "start", "on_duplicate": "raise"}
    },
    "unique by time": {"options": {"unique_for": 60, "unique_until": "expiry"}},
    "unique by an argument": {"options": {"unique_for": 60, "unique_by": 7}},
    "unique, for later": {"at": NOW + 100, "options": {"unique_for": 60, "on_duplicate": "replace"}},
    "a full queue": {"options": {"max_waiting": 100}},
    "a member of a batch": {"batch": BATCH},
    "everything": {
        "at": NOW + 100,
        "batch": BATCH,
        "options": {
            "retry": 3,
            "tags": ["x"],
            "timeout": 5,
            "expires_in": 60,
            "unique_for": 600,
            "on_duplicate": "replace",
            "track": 60,
            "history": True,
            "max_waiting": 10,
            "extra": {"tenant": 7},
        },
    },
    "sealed": {"keys": [as_base64(KEYS[0])], "options": {"encrypt": True}},
    "sealed and unique": {
        "keys": [as_base64(key) for key in KEYS],
        "options": {"encrypt": True, "unique_for": 60},
    },
    "refused: no class": {"class": ""},
    "refused: a bar in the class": {"class": "A|B"},
    "refused: no queue": {"queue": ""},
    "refused: a blank in the queue": {"queue": "a b"},
    "refused: a reserved queue": {"queue": "queue:a"},
    "refused: another reserved queue": {"queue": "a:inprogress"},
    "refused: a long queue": {"queue": "q" * 129},
    "refused: a lone surrogate": {"args": '["\\ud800"]'},
    "refused: a number that no double holds": {"args": "[1e400]"},
    "refused: 501 levels": {"args": f"[{'[' * 501}{']' * 501}]"},
    "refused: arguments that are no list": {"args": '{"a":1}'},
    "refused: a unique job for no time": {"options": {"unique_for": 0}},
    "refused: an unknown end of the lock": {"options": {"unique_for": 60, "unique_until": "end"}},
    "refused: unique_until without unique_for": {"options": {"unique_until": "start"}},
    "refused: history without track": {"options": {"history": True}},
    "refused: a negative number of retries": {"options": {"retry": -1}},
    "refused: expires in no time": {"options": {"expires_in": 0}},
    "refused: an unknown option": {"options": {"timeot": 5}},
    "refused: a field of pyworkers": {"options": {"extra": {"unique_key": "x"}}},
    "refused: a field that servers write": {"options": {"extra": {"checkpoint": True}}},
    "refused: a field of a step": {"options": {"extra": {"fill": {"RESULT": [[0]]}}}},
    "refused: a time after the year 9999": {"at": 253402300800},
    "refused: no room at all": {"options": {"max_waiting": 0}},
}
"""Each differs from the first one in what it has."""


def call(name: str) -> dict[str, Any]:
    """The enqueue call of this name."""
    same = {"queue": "mail", "class": "Add", "args": '[7,"hello"]', "jid": JID, "now": NOW, "options": {}}
    found = {**same, **CALLS[name]}
    return found if "keys" not in found else {**found, "nonce": NONCE.hex()}


def job_of(about: dict[str, Any]) -> PushedJob:
    """The job of an enqueue call. Raises BadArgumentError."""
    options = {**about["options"], "jid": about["jid"]}
    sealing = Keyring([KEYS[0]]) if "keys" in about else None
    at = moment(None, about.get("at"), about["now"])
    plan = draft(
        about["queue"], about["class"], options.pop("retry", None), options, at, Writing(None, sealing)
    )
    with patch("os.urandom", lambda size: NONCE):
        job = plan.job(json.loads(about["args"]), about["now"])
    if batch := about.get("batch"):
        [job] = members([job], batch)
        job = job._replace(conditions=(job.conditions or Conditions())._replace(batch=batch))
    return job


def cases() -> list[dict[str, Any]]:
    """The calls with their jobs."""
    return [{"name": name, "enqueue": call(name), **_expected(call(name))} for name in CALLS]


def _expected(about: dict[str, Any]) -> dict[str, Any]:
    try:
        job = job_of(about)
    except BadArgumentError as error:
        return {"refused": error.message}
    found = {"list": f"queue:{job.queue}"} if job.at is None else {"score": job.at}
    return {**found, "payload": job.payload.decode()}
