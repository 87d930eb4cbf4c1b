"""Running: the jobs that run, as JSON text for the Web UI and as fields for the log.

Pure; used by the master once per beat, never for each job. The arguments of a large job are left out, because
every beat writes them to Redis again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import simplejson

from pyworkers.errors import BadMessageError
from pyworkers.http.masking import masked
from pyworkers.protocol import envelope
from pyworkers.protocol.message import Message

MAX_SHOWN = 16 * 1024
"""The size in bytes up to which a job is shown with its arguments."""
# Decoding takes about 10 ns a byte: 200 workers with jobs of this size cost the master 0.1 s, once.
_MAX_DECODED = 64 * 1024
# Bytes searched at each end of a job: producers put the short fields before the arguments, or after them.
_EDGE = 2048


@dataclass(frozen=True, slots=True)
class Running:
    """A job that a worker runs, in one of its slots. ``started_at`` is in epoch seconds."""

    queue: str
    pid: int
    number: int
    """Unique in the group of its queue."""
    raw: bytes
    started_at: float
    slot: int = 1
    """Counted from 1."""
    limit_at: float | None = None
    """The end of its time limit in epoch seconds; None without a limit."""

    @property
    def name(self) -> str:
        """Sidekiq's ``tid``, by which it distinguishes running jobs: process and thread."""
        return f"{self.pid}.{self.slot}"


class Payloads:
    """Caches the texts of the running jobs, so that each job is decoded once."""

    def __init__(self) -> None:
        self._mask: Collection[str] = ()
        self._shown: dict[tuple[int, int], str] = {}

    def of(self, jobs: Iterable[Running], mask: Collection[str] = ()) -> Iterator[tuple[Running, str]]:
        """Each job with its JSON text; an invalid one is left out.

        ``mask``: names of members whose values are hidden; a reload may have changed it.
        """
        if mask != self._mask:
            self._mask, self._shown = mask, {}
        shown = {}
        for job in jobs:
            # Not by queue: after a reload, another group may have the queue, and count from 1.
            key = (job.pid, job.number)
            text = shown[key] = self._shown.get(key) or self._text(job.raw)
            if text:
                yield job, text
        self._shown = shown

    def _text(self, raw: bytes) -> str:
        text = show(raw)
        return _masked(text, self._mask) if text and self._mask else text


def _masked(text: str, mask: Collection[str]) -> str:
    """The text with hidden values; the same if it has none. Empty if it cannot be read."""
    try:
        value = simplejson.loads(text)
        hidden = masked(value, mask)
        return text if hidden == value else envelope.encode(hidden)
    except (ValueError, RecursionError):
        return ""


def show(raw: bytes) -> str:
    """A job as JSON text, without its arguments if it is large; empty if it is invalid."""
    if len(raw) > _MAX_DECODED:
        return envelope.encode({**_edges(raw), "args": [_cut(raw)]})
    try:
        envelope.decode(raw)
        if len(raw) > MAX_SHOWN:
            raw = envelope.splice(raw, {"args": [_cut(raw)]})
    except BadMessageError:
        return ""
    return raw.decode("utf-8-sig")


def names(raw: bytes, queue: str) -> dict[str, object]:
    """The log fields of a job that its worker does not log; none if the job is invalid.

    A large job, which is not decoded here, has no ``attempt``.
    """
    if len(raw) > _MAX_DECODED:
        found = _edges(raw)
        return {"jid": found["jid"], "job_class": found["class"]}
    try:
        message = Message.parse(raw, queue, str)
    except BadMessageError:
        return {}
    return {"jid": message.jid, "job_class": message.job_class, "attempt": message.attempt}


def _cut(raw: bytes) -> str:
    return f"(a job of {len(raw)} bytes, not shown)"


def _edges(raw: bytes) -> dict[str, str]:
    """Class and jid, if they are near either end of the job; the arguments between are not decoded."""
    found = {}
    for name in ("class", "jid"):
        pattern = rb'"%s"\s*:\s*"([^"\\]*)"' % name.encode()
        match = re.search(pattern, raw[:_EDGE]) or re.search(pattern, raw[-_EDGE:])
        found[name] = match[1].decode(errors="replace") if match else ""
    return found
