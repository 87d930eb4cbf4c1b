"""AuditLog: who did what by the dashboard, and when; the last thousand actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api.columns import Column, Kind, Table, page_of
from pyworkers.api.record import as_text
from pyworkers.api.target import AtRedis
from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.views import audit
from pyworkers.text import valid

_LONGEST = 300
"""The characters of each text that are kept."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line of the audit: ``who`` did ``action`` (``queue.pause``) to ``target``, with this ``result``.

    ``source`` is the address of the person's machine; ``at`` is in epoch seconds, by Redis' clock.
    """

    who: str
    source: str
    action: str
    target: str
    result: str
    at: float | None = None
    undo: str = ""
    """The id of the deletion that can be undone (``Deletion``), for ten minutes."""

    def as_dict(self) -> dict[str, Any]:
        """The entry for JSON."""
        return AUDIT_ACTION.as_dict(self)


Action = AuditEntry
"""The former name of AuditEntry."""

AUDIT_ACTION: Table[AuditEntry] = Table(
    "AuditAction",
    Column("who", title="Who", cut=3),
    Column("source", title="From", about="The address of the person's machine.", cut=4),
    Column("action", title="Action", empty="(no action)", cut=5),
    Column("target", title="Target", cut=1),
    Column("result", title="Result", cut=2),
    Column("at", Kind.MOMENT, "When", nullable=True),
    Column("undo", about="The id with which deleted jobs can be put back for ten minutes.", optional=True),
)
AUDIT = page_of("Audit", "actions", AUDIT_ACTION)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some of the actions, the latest first, from rank ``first`` on, of ``total``."""

    first: int
    total: int
    actions: Sequence[AuditEntry]

    def as_dict(self) -> dict[str, Any]:
        """The page for JSON."""
        return AUDIT.as_dict(self)


def record(keys: Keys, entry: AuditEntry) -> Steps[float]:
    """Add an entry; returns its time by Redis' clock. Texts are cut after 300 characters."""
    texts = (entry.who, entry.source, entry.action, entry.target, entry.result)
    who, source, name, target, result = map(_writable, texts)
    fields = {"who": who, "source": source, "action": name, "target": target, "result": result}
    if entry.undo:
        fields["undo"] = entry.undo
    return audit.write(keys, fields)


def read_audit(keys: Keys, first: int = 0, count: int = 50) -> Steps[AuditPage]:
    """A page of the actions. An entry that is not an action is shown as its text."""
    total, entries = yield from audit.read(keys, first, count)
    return AuditPage(first, total, [_action(raw) for raw in entries])


class AuditLog(AtRedis):
    """The actions. All methods raise RedisUnavailableError and StoreError."""

    def page(self, first: int = 0, count: int = 50) -> AuditPage:
        """The actions from rank ``first`` on, the latest first."""
        return self._admin.run(read_audit(self._admin.keys, first, count))

    def record(self, action: AuditEntry) -> float:
        """Add an entry; returns its time, in epoch seconds by Redis' clock."""
        return self._admin.run(record(self._admin.keys, action))


def _writable(text: str) -> str:
    """A text that UTF-8 can encode, cut."""
    return valid(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _action(raw: bytes) -> AuditEntry:
    try:
        found = envelope.decode(raw)
    except BadMessageError:
        return AuditEntry("", "", raw.decode(errors="backslashreplace"), "", "")
    who, source, action, target, result = (
        as_text(found.get(name)) for name in ("who", "source", "action", "target", "result")
    )
    undo = as_text(found.get("undo"))[:_LONGEST]
    return AuditEntry(who, source, action, target, result, timestamps.read(found.get("at")), undo)
