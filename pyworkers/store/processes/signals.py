"""Signals: sends a signal to a server, and requests its counters.

Used by ``api``; a server reads signals and requests with its heartbeat (store/heartbeat.py).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import WATCHED_TTL_S, Keys
from pyworkers.store import full
from pyworkers.store.calls import Request, Steps, one
from pyworkers.store.processes.reading import Processes

SIGNAL_TTL_S = 60
"""Sidekiq's api.rb: a process that has not read a signal after this time has crashed."""
# An idle server writes its heartbeat every 15 s: a server without one for this time will not answer.
_ANSWERS_S = 20.0


class Signal(StrEnum):
    """A signal to a server, by Sidekiq's word for it; ``RELOAD`` is ours.

    Sidekiq sends each word to itself as a signal of the system: HUP would end it.
    """

    QUIET = "TSTP"
    STOP = "TERM"
    DUMP = "TTIN"
    RELOAD = "HUP"


def signal(keys: Keys, identity: str, word: Signal) -> Request[object]:
    """Store a signal for a process, which reads it with its next heartbeat (Sidekiq's api.rb)."""
    key = keys.signals(identity)
    return full.writes(keys, ("LPUSH", key, word), ("EXPIRE", key, SIGNAL_TTL_S), read=list)


def watch(keys: Keys) -> Steps[int]:
    """Request that the servers write their counters now, and each second for the next ten.

    Returns the number of this request, for ``answered``; 0 if nothing was written, because the slot of a
    cluster moves. Raises StoreError if the user may not write.
    """
    seconds, microseconds = yield from one("TIME", read=tuple)
    look = int(seconds) * 1_000_000 + int(microseconds)
    request = full.write(keys, "SET", keys.watched, look, "EX", WATCHED_TTL_S, read=bool)
    try:
        yield from replace(request, hurries=True)
    except RedisUnavailableError as error:
        if error.code != "TRYAGAIN":
            raise
        return 0
    return look


def answered(keys: Keys, look: int) -> Steps[bool]:
    """True if each live pyworkers server has answered the ``watch`` with this number, or a later one."""
    late = look / 1e6 - _ANSWERS_S
    pages = Processes(keys)
    while not pages.ended:
        for view in (yield from pages.next_page()):
            if view.look is not None and view.look < look and view.beat >= late:
                return False
    return True
