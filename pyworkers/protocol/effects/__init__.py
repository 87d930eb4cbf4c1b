"""Effects: a few writes that an outcome may carry, as values (kinds.py), and lists of them (lists.py).

Pure; made in the worker process by steps and links, applied by the exchange script together with the
settlement of the job: only if the script removed one entry from the in-progress list. So each runs once, also
if the worker, the server or Redis dies in between, or if the same outcome is sent twice. An effect that Redis
refuses (WRONGTYPE) is logged; the settlement and the other effects still take place.

A running job may note effects (``Execution.note``): they are applied if the job is still in its in-progress
list, and perhaps twice.

The fields of an envelope give each end of its job effects, also of one that is lost with its worker,
cancelled, deleted or killed (protocol/flow). Effects of the application are added by the worker alone,
by a link to the outcome that it returns (``Outcome.with_effects``), and by ``Worker.effects`` to every
outcome, also of a job that raised: the other ends have none of them.

Keys are named without the namespace and the prefix ``pyworkers:``, which are added to all of them: an effect
cannot change keys of Sidekiq, and ``pyworkers acl`` grants the rights.
"""

from pyworkers.protocol.effects.kinds import (
    Announce,
    AppendLog,
    CountMember,
    CountOut,
    DeleteField,
    DeleteIteration,
    DeleteKey,
    Effect,
    EndLog,
    FreeSlot,
    HoldHead,
    KeepFinished,
    NoteRun,
    NoteStart,
    PassSlot,
    PauseQueue,
    Push,
    StoreFields,
    StoreIteration,
    StoreValue,
    Unlock,
)
from pyworkers.protocol.effects.lists import (
    MAX_BYTES,
    arguments,
    can_be_sent,
    merge,
    name_of,
    pack,
    size_of,
    subject_of,
    unpack,
)

__all__ = [
    "MAX_BYTES",
    "Announce",
    "AppendLog",
    "CountMember",
    "CountOut",
    "DeleteField",
    "DeleteIteration",
    "DeleteKey",
    "Effect",
    "EndLog",
    "FreeSlot",
    "HoldHead",
    "KeepFinished",
    "NoteRun",
    "NoteStart",
    "PassSlot",
    "PauseQueue",
    "Push",
    "StoreFields",
    "StoreIteration",
    "StoreValue",
    "Unlock",
    "arguments",
    "can_be_sent",
    "merge",
    "name_of",
    "pack",
    "size_of",
    "subject_of",
    "unpack",
]
