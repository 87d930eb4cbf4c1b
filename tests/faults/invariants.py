"""What must hold after any fault, between the ledger and every key of Redis.

I1 no job is lost. I2 each job is in exactly one place. I3 a job runs again only for a fault that touched it.
I4 ``retry_count`` is the number of failures counted. I5 no key is undeclared, and every auxiliary key dies by
itself. I7 no two servers run one job at once while leases are valid. I8 unknown fields stay as they are.
(I6, processes, descriptors and memory, is watched where a scenario can make them grow.)
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Container
from typing import Any

import redis

from pyworkers.protocol.keys import Keys
from tests.faults.ledger import Ledger, Run
from tests.helpers.replies import as_list

# The names of keys.py, and whether a key must have a TTL.
DECLARED = {
    r"queues": False,
    r"queue:[^:]+": False,
    r"queue:.+:inprogress": False,
    r"schedule|retry|dead|goretry": False,
    r"(pyworkers:)?stat:\w+": False,
    r"(pyworkers:)?stat:\w+:\d{4}-\d\d-\d\d": True,
    r"processes|paused": False,
    r"pyworkers:owners": False,
    r"pyworkers:ordered:.+": False,
    r"pyworkers:(cancelled|suspects|unique:.+)": True,
    r"pyworkers:(limits|limit:.+)": False,
    r"pyworkers:limit-waiting:.+": True,
    r"pyworkers:batches": False,
    r"pyworkers:locks": False,
    r"pyworkers:(moves|moving:.+|moved:.+)": False,
    r"pyworkers:sweep:(turn|missing)": True,
    r"pyworkers:(awaited|wire|finished)": True,
    r"pyworkers:cron(-entries|-paused|-version)?": False,
    r"pyworkers:(lease|recovered|cron|cron-declared|cron-runs|turn|batch|runs|durations):.+": True,
    r"pyworkers:(job|log|result|finished|busy|gauges):.+": True,
    # The heartbeat in Sidekiq's form: identity, and what belongs to it.
    r"[^:]+:\d+:[0-9a-f]{12}(:.+|-signals)?": True,
    r"process_cleanup": True,
    # Sidekiq's metrics, by job class and moment.
    r"[hj]\|.+|[^:|]+-\d+-\d+:\d+": True,
}
# By id of a job, every key that holds it, and the stored text.
Places = dict[str, list[tuple[str, str]]]
UNKNOWN = '"unknown":{"kept":[1]}'


def check(
    ledger: Ledger,
    connection: redis.Redis,
    keys: Keys,
    extra_runs: int | dict[str, int] = 0,
    *,
    unleased: Container[str] = (),
    lost: frozenset[str] = frozenset(),
) -> None:
    """Raise AssertionError with every invariant that does not hold now, at rest.

    ``extra_runs`` is how many runs faults may have added to each job, or to these. ``unleased`` are the jobs
    whose server was stopped, or cut off, for longer than its lease; ``lost``
    are those that Redis itself has lost.
    """
    places = find_jobs(connection, keys)
    problems = [
        *_accounted(ledger, places, lost),
        *_single(places),
        *_repeated(ledger, extra_runs),
        *_counted(ledger, places, extra_runs),
        *undeclared(connection, keys),
        *_overlapping(ledger, unleased),
        *_changed(places),
    ]
    assert not problems, "\n".join(problems)


def find_jobs(connection: redis.Redis, keys: Keys) -> Places:
    """By id of a job, every key that holds it, and the stored text."""
    found: Places = defaultdict(list)
    for key in map(bytes.decode, set(connection.scan_iter(f"{keys.namespace}*", count=1000))):
        name = key.removeprefix(keys.namespace)
        if name.startswith("queue:"):
            members = as_list(connection.lrange(key, 0, -1))
        elif name in ("schedule", "retry", "dead"):
            members = as_list(connection.zrange(key, 0, -1))
        else:
            continue
        for member in members:
            found[_jid(member)].append((name, member.decode(errors="replace")))
    return dict(found)


def _jid(member: bytes) -> str:
    try:
        return str(json.loads(member)["jid"])
    except (ValueError, KeyError, TypeError):
        return repr(member)


def _accounted(ledger: Ledger, places: Places, lost: frozenset[str]) -> list[str]:
    ended = {note.jid for note in ledger.notes("end")}
    gone = ledger.enqueued() - ended - places.keys() - lost
    return [f"I1: {jid} is lost: {[note.word for note in ledger.notes(jid=jid)]}" for jid in sorted(gone)]


def _single(places: Places) -> list[str]:
    return [
        f"I2: {jid} is in {[name for name, _ in found]}" for jid, found in places.items() if len(found) > 1
    ]


def _allowed(extra_runs: int | dict[str, int], jid: str) -> int:
    return extra_runs if isinstance(extra_runs, int) else extra_runs.get(jid, 0)


def _repeated(ledger: Ledger, extra_runs: int | dict[str, int]) -> list[str]:
    problems = []
    for jid, runs in ledger.runs().items():
        failures = sum(run.end is not None and run.end.word == "raise" for run in runs)
        extra = len(runs) - 1 - failures + (runs[-1].end is not None and runs[-1].end.word == "raise")
        if extra > _allowed(extra_runs, jid):
            problems.append(f"I3: {jid} ran {len(runs)} times with {failures} failures: {_story(runs)}")
    return problems


def _story(runs: list[Run]) -> list[str]:
    return [f"{run.start.server}/{run.start.pid} {run.end.word if run.end else 'died'}" for run in runs]


def _counted(ledger: Ledger, places: Places, extra_runs: int | dict[str, int]) -> list[str]:
    """Of jobs that wait for a retry, or are dead. A failure that a fault has undone is not counted."""
    problems = []
    raises = Counter(note.jid for note in ledger.notes("raise"))
    for jid, found in places.items():
        raised = raises[jid]
        for name, text in found:
            count = _field(text, "retry_count")
            counted = 0 if count is None else count + 1
            if not raised - _allowed(extra_runs, jid) <= counted <= raised:
                problems.append(f"I4: {jid} in {name} has failed {raised} times and counts {counted}")
    return problems


def _field(text: str, name: str) -> Any:
    try:
        return json.loads(text).get(name)
    except (ValueError, AttributeError):
        return None


def undeclared(connection: redis.Redis, keys: Keys) -> list[str]:
    """I5: undeclared keys, and auxiliary keys that would stay for ever."""
    problems = []
    for key in map(bytes.decode, set(connection.scan_iter(f"{keys.namespace}*", count=1000))):
        name = key.removeprefix(keys.namespace)
        mortal = [ttl for pattern, ttl in DECLARED.items() if re.fullmatch(pattern, name)]
        if not mortal:
            problems.append(f"I5: {name} is no declared key")
        elif all(mortal) and connection.ttl(key) == -1:
            problems.append(f"I5: {name} has no TTL")
    return problems


def _overlapping(ledger: Ledger, unleased: Container[str]) -> list[str]:
    problems = []
    for jid, runs in ledger.runs().items():
        if jid in unleased:
            continue
        for before, after in itertools.pairwise(runs):
            if before.end is not None and before.end.time > after.start.time:
                problems.append(f"I7: {jid} ran twice at once: {_story(runs)}")
    return problems


def _changed(places: Places) -> list[str]:
    return [
        f"I8: {jid} in {name} lost its unknown field: {text}"
        for jid, found in places.items()
        for name, text in found
        if '"unknown"' in text and UNKNOWN not in text
    ]
