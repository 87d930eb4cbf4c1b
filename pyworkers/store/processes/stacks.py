"""Stacks: asks the server of a running job where the job is, and the answer.

Used by ``api``, and by a server for the answer. The request comes to a server with its signals.
"""

from __future__ import annotations

from dataclasses import replace

import simplejson

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.stacks import LIFE_S, WORD, JobStack, read_stack
from pyworkers.store.calls import Mode, Steps, command, every, one
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes.signals import SIGNAL_TTL_S
from pyworkers.store.values import decoded_json


def ask(keys: Keys, wanted: JobStack) -> Steps[bool]:
    """Ask the server of a job for its stack. False for a server of another program, which is not asked."""
    if not (yield from one("HEXISTS", keys.owners, wanted.server, read=bool)):
        return False
    asked = replace(wanted, at=(yield from clock()))
    signals = keys.signals(asked.server)
    yield from every(
        [
            command("SET", keys.stack(asked.jid), _packed(asked), "EX", LIFE_S),
            command("LPUSH", signals, f"{WORD} {asked.jid}"),
            command("EXPIRE", signals, SIGNAL_TTL_S),
        ],
        Mode.TRANSACTION,
    )
    return True


def answer(keys: Keys, found: JobStack) -> Steps[None]:
    """Write the answer of a server, unless the request has expired."""
    asked = yield from read(keys, found.jid)
    if asked is not None:
        at = yield from clock()
        answered = replace(found.bounded(), queue=asked.queue, at=at, answered=True)
        yield from one("SET", keys.stack(found.jid), _packed(answered), "EX", LIFE_S, read=bool)


def read(keys: Keys, jid: str) -> Steps[JobStack | None]:
    """The last answer about a job, or the request without one; None if there is none, or no text."""
    [reply] = yield from every([command("GET", keys.stack(jid))], Mode.LENIENT)
    stored = decoded_json(reply, dict)
    return None if stored is None else read_stack(jid, stored)


def _packed(stack: JobStack) -> str:
    # In ASCII: the id of a job, and a queue that another program has written, may have half of a pair.
    return simplejson.dumps(stack.as_dict(), separators=(",", ":"))
