"""Clean-up: removes the names of processes whose description has expired.

Used by ``api`` and by the server, which calls it each minute.
"""

from __future__ import annotations

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps, one
from pyworkers.store.measures.look import present
from pyworkers.store.processes.reading import Identities
from pyworkers.store.transport.replies import integer

CLEANUP_S = 60
"""The time between two cleanups, of all programs together (Sidekiq's api.rb)."""


def cleanup(keys: Keys) -> Steps[list[bytes]]:
    """Remove the processes whose description has expired, unless a program did it in the last minute.

    Returns their names. A description of another type, or one that the user may not read, counts as present.
    """
    if not (yield from one("SET", keys.process_cleanup, "1", "NX", "EX", CLEANUP_S, read=bool)):
        return []
    removed: list[bytes] = []
    identities = Identities(keys)
    while not identities.ended:
        names = yield from identities.next_page()
        described = {*(yield from present([keys.process(name) for name in names]))}
        expired = [name for name in names if keys.process(name) not in described]
        if expired:
            yield from one("SREM", keys.processes, *expired, read=integer)
            removed += (name.encode(errors="surrogateescape") for name in expired)
    return removed
