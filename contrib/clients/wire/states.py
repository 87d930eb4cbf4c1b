"""States: the vectors of what clients read of a tracked job: its status and its end.

``hash`` are the fields of ``pyworkers:job:JID``; ``status`` what they mean: an invalid value counts as
missing. ``value`` is the field ``v`` of the entry in ``pyworkers:result:JID``; one with ``refused`` counts as
missing.
"""

from __future__ import annotations

from typing import Any

from pyworkers.protocol.status import FIELDS, JobState, pack_answer, read_answer, read_status

_RUNNING = {"state": "running", "queue": "mail", "attempt": "0", "started_at": "1795225197.5"}
_ENDED = {**_RUNNING, "finished_at": "1795225198.25", "error": ""}
_HASHES: dict[str, dict[str, str]] = {
    "no key": {},
    **{state.value: {"state": state.value, "queue": "mail", "attempt": "0"} for state in JobState},
    "running, again": {**_RUNNING, "attempt": "3", "error": "ValueError: no"},
    "progress": {**_RUNNING, "progress": '[30,100,"page 3"]'},
    "progress without a total": {**_RUNNING, "progress": '[0.5,null,""]'},
    "done": {**_ENDED, "state": "done"},
    "dead": {**_ENDED, "state": "dead", "attempt": "25", "error": "ZeroDivisionError: division by zero"},
    "an unknown state": {"state": "asleep", "queue": "mail"},
    "no state": {"queue": "mail", "attempt": "1"},
    "an invalid attempt": {"state": "running", "attempt": "many"},
    "a negative attempt": {"state": "running", "attempt": "-1"},
    "invalid times": {"state": "done", "started_at": "soon", "finished_at": "nan"},
    "an invalid progress": {"state": "running", "progress": "half"},
    "a progress of texts": {"state": "running", "progress": '["1","2",""]'},
}
_ANSWERS: dict[str, str] = {
    "done": pack_answer(JobState.DONE, b'{"rows":[1,2.5,null]}', "", "").decode(),
    "done, with null": pack_answer(JobState.DONE, b"null", "", "").decode(),
    "dead": pack_answer(JobState.DEAD, b"null", "ValueError", "no \u00e9").decode(),
    "failed": pack_answer(JobState.FAILED, b"null", "ValueError", "no").decode(),
    "cancelled": pack_answer(JobState.CANCELLED, b"null", "", "").decode(),
    "expired": pack_answer(JobState.EXPIRED, b"null", "", "").decode(),
    "a batch with a dead member": '{"state":"dead","error":"a member is dead","reason":"dead","jid":"c0"}',
    "a batch that is done": '{"state":"done","result":[1,null]}',
}
_REFUSED = {
    "no JSON": "done",
    "no object": "[1]",
    "an unknown state": '{"state":"asleep"}',
    "no state": '{"result":1}',
}


def status_cases() -> list[dict[str, Any]]:
    """The fields of the hash, and the status."""
    found = []
    for name, fields in _HASHES.items():
        values = [fields[field].encode() if field in fields else None for field in FIELDS]
        status = read_status(values)
        found.append({"name": name, "hash": fields, "status": status.as_dict(), "final": status.state.final})
    return found


def answer_cases() -> list[dict[str, Any]]:
    """The text of an answer, and what it says."""
    found: list[dict[str, Any]] = []
    for name, value in _ANSWERS.items():
        answer = read_answer(value.encode())
        about = {"state": answer.state.value, "result": answer.result, "error_class": answer.error_class}
        more = {"error": answer.error, "jid": answer.member, "reason": answer.reason}
        found.append({"name": name, "value": value, "answer": {**about, **more}})
    return [
        *found,
        *({"name": f"refused: {why}", "value": value, "refused": why} for why, value in _REFUSED.items()),
    ]
