"""Carrying: the client link that writes values of structlog's context into the jobs that are enqueued.

Used in programs that enqueue, if names are configured. It never imports structlog: in a program that has not,
no value is bound.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyworkers.protocol.draft import JobDraft
from pyworkers.protocol.flow.carrying import FIELD, to_carry

if TYPE_CHECKING:
    from pyworkers.middleware import ClientCallNext


class Carrying:
    """Writes the values under ``names``; a job that has the field already keeps it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __call__(self, draft: JobDraft, call_next: ClientCallNext) -> str:
        values = {} if FIELD in draft.extra else to_carry(_context(), self._names)
        return call_next(draft.with_extra(**{FIELD: values}) if values else draft)


def _context() -> Mapping[str, object]:
    module = sys.modules.get("structlog.contextvars")
    return module.get_contextvars() if module is not None else {}
