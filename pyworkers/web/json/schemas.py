"""Schemas: the JSON schema of each answer. One with a title stands in OpenAPI once, under this name.

Pure. A test compares them with answers.
"""

from __future__ import annotations

from pyworkers.api.browse.pages import ROW
from pyworkers.api.record import JOB
from pyworkers.api.running import PROGRESS
from pyworkers.api.schemas import (
    ANY,
    COUNT,
    FLAG,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
    OBJECT,
    TEXT,
    array,
    maybe,
    record,
)

ERROR = record("Error", {"error": TEXT})
DONE = record("Done", {"action": TEXT, "done": COUNT}, {"task": TEXT})

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
        "job": {"anyOf": [ROW.schema, JOB.schema]},
        "limits": array(TEXT),
        "ordered": record("Order", {"active": TEXT, "running": FLAG, "retry_at": MAYBE_NUMBER}),
        "status": _STATUS,
        "result": ANY,
        "further": record("Further", {"place": TEXT, "cursor": TEXT}),
    },
)
