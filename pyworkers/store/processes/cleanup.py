"""Clean-up: removes the names of processes whose description has expired.

Used by ``api`` and by the server, which calls it each minute.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, every, one
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
        expired = yield from _expired(keys, names)
        if expired:
            yield from one("SREM", keys.processes, *expired, read=integer)
            removed += (name.encode(errors="surrogateescape") for name in expired)
    return removed


def _expired(keys: Keys, names: Sequence[str]) -> Steps[list[str]]:
    """Those without a description: most often none, which one command tells."""
    descriptions = [keys.process(name) for name in names]
    if not names or (yield from every([command("EXISTS", *descriptions)], Mode.LENIENT)) == [len(names)]:
        return []
    present = yield from every([command("EXISTS", description) for description in descriptions], Mode.LENIENT)
    return [name for name, there in zip(names, present, strict=True) if there == 0]
