"""Schemas: the JSON schema of each answer. One with a title stands in OpenAPI once, under this name.

Pure. A test compares them with answers.
"""

from __future__ import annotations

from pyworkers.api.groups import GROUP
from pyworkers.api.locks import LOCK
from pyworkers.api.processes import SERVER
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.running import PROGRESS, WORK
from pyworkers.api.schemas import (
    ANY,
    COUNT,
    FLAG,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
    OBJECT,
    SCORE,
    TEXT,
    array,
    maybe,
    more,
    page_of,
    record,
)
from pyworkers.protocol.flow.counted import COUNTERS

ERROR = record("Error", {"error": TEXT})
DONE = record("Done", {"action": TEXT, "done": COUNT}, {"task": TEXT})

_COUNTS = (*COUNTERS, "enqueued", "busy", "scheduled", "retries", "dead", "processes")
STATS = record(
    "Stats",
    {
        **dict.fromkeys(_COUNTS, COUNT),
        "oldest": maybe(record("Oldest", {"queue": TEXT, "age_s": NUMBER})),
        "queues": array(QUEUE.schema),
        "groups": array(GROUP.schema),
        "servers": array(SERVER.schema),
        "lost": array(TEXT),
    },
)
PROBLEM = record("Problem", dict.fromkeys(("severity", "code", "message", "fix", "queue", "server"), TEXT))
DAY = record("Day", {"date": TEXT, "processed": COUNT, "failed": COUNT})
LOCKS = record("Locks", {"cursor": COUNT, "scanned": COUNT, "locks": array(LOCK.schema)})
JOB = record(
    "Job",
    {"jid": TEXT, "class": TEXT, "queue": TEXT, "args": array(ANY)},
    {"error": TEXT, "unreadable": TEXT, "raw": TEXT, "job": OBJECT},
)
_ROW = more(
    JOB,
    "Row",
    {"index": COUNT, "at": TEXT, "bytes": COUNT},
    {"score": SCORE, "cut": FLAG},
)
JOBS = record(
    "Jobs", {"total": COUNT, "jobs": array(_ROW)}, {"first": COUNT, "looked_at": COUNT, "cursor": TEXT}
)
_WORK = more(JOB, "Work", WORK.schema["properties"])
WORKS = more(page_of("Works", "works", _WORK), "Works", {"complete": FLAG})
TASK = record(
    "Task",
    {
        **dict.fromkeys(("id", "place", "action", "by", "state", "reason"), TEXT),
        **dict.fromkeys(("total", "looked_at", "selected", "done", "refused", "counted"), COUNT),
        "at": MAYBE_NUMBER,
        "filter": OBJECT,
    },
)
_STATUS = record(
    "Status",
    {
        "state": TEXT,
        "queue": TEXT,
        "attempt": COUNT,
        "progress": maybe(PROGRESS.schema),
        "started_at": MAYBE_NUMBER,
        "finished_at": MAYBE_NUMBER,
        "error": MAYBE_TEXT,
    },
)
JOB_VIEW = record(
    "JobView",
    {"jid": TEXT, "state": TEXT, "cancelled": FLAG},
    {
        "place": TEXT,
        "running": record("Running", {"identity": TEXT, "queue": TEXT, "run_at": NUMBER}),
        "job": {"anyOf": [_ROW, JOB]},
        "limits": array(TEXT),
        "ordered": record("Order", {"active": TEXT, "running": FLAG, "retry_at": MAYBE_NUMBER}),
        "status": _STATUS,
        "result": ANY,
        "further": record("Further", {"place": TEXT, "cursor": TEXT}),
    },
)
