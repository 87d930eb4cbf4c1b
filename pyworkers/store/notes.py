"""Notes: reads and removes the ids of cancelled jobs, Sidekiq's cancellations included.

Run by the master; ``note`` by clients and ``api``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Request, Steps, decoded, one, script
from pyworkers.store.transport.replies import integer

NOTE_TTL_S = 86_400
"""How long servers refuse a cancelled job that was not found."""
# One id takes Redis about a microsecond.
_PER_SCRIPT = 500


def notes(keys: Keys) -> Request[frozenset[str]]:
    """The ids of the cancelled jobs."""
    return one("ZRANGE", keys.cancelled, 0, -1, read=texts)


def note(keys: Keys, jid: str) -> Request[object]:
    """Note that a job must not run. Servers read the note within a second."""
    return script("mark", [keys.cancelled], [jid.encode(), NOTE_TTL_S], bool)


def note_cancelled(keys: Keys, jids: Sequence[str]) -> Steps[int]:
    """Turn Sidekiq's cancellations of these jobs into notes. Returns how many there were."""
    total = 0
    for portion in portions(jids, _PER_SCRIPT):
        names = [keys.cancelled, *map(keys.iteration, portion)]
        total += yield from script("note_cancelled", names, [NOTE_TTL_S, *portion], integer, keys.namespace)
    return total


def forget(keys: Keys, jids: Sequence[str]) -> Request[int]:
    """Remove the notes of jobs that have ended; ``jids`` must not be empty."""
    return one("ZREM", keys.cancelled, *jids, read=integer)


def texts(stored: Iterable[bytes]) -> frozenset[str]:
    """Stored names as text, also those that are not UTF-8."""
    return frozenset(map(decoded, stored))
