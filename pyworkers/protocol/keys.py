"""The names of all Redis keys, and the rule for queue names.

Pure; read by every process. The names are Sidekiq's and go-workers' (contrib/docs/protocol.md, Keys); the few
that pyworkers adds start with ``pyworkers:``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

INPROGRESS_SUFFIX = ":inprogress"
WATCHED_TTL_S = 10
"""Seconds for which servers write their numbers each second after a reader has asked for them."""
QUEUE_NAME_RULE = (
    "a queue name has 1 to 128 characters, no white space, control character or '|', does not start with "
    "'queue:' or 'backup::', and does not end with ':inprogress'"
)
_QUEUE_NAME = re.compile(r"[^\s\x00-\x1f\x7f|]{1,128}\Z")
# The characters with a meaning in Redis' glob patterns, outside of brackets.
_SPECIAL = re.compile(r"[\[\]*?\\]")
# After "queue:" these collide with the in-progress lists of Exq (queue:backup::…) and of pyworkers.
_RESERVED_PREFIXES = ("queue:", "backup::")


def check_queue_name(name: object) -> None:
    """Raise ValueError, with the rule, for a name that cannot be a queue."""
    bad = (
        not isinstance(name, str)
        or not _QUEUE_NAME.match(name)
        or name.startswith(_RESERVED_PREFIXES)
        or name.endswith(INPROGRESS_SUFFIX)
        or any(0xD800 <= ord(char) <= 0xDFFF for char in name)
    )
    if bad:
        raise ValueError(f"{name!r} cannot be a queue: {QUEUE_NAME_RULE}")


def is_queue_name(name: object) -> bool:
    """False for a name that cannot be a queue."""
    try:
        check_queue_name(name)
    except ValueError:
        return False
    return True


def literal(text: str) -> str:
    """The glob pattern (``SCAN``, ``ZSCAN``, ACL) that matches only this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def hash_tag(namespace: str) -> str:
    """What determines the slot of all keys on a Redis Cluster; empty if they are in many slots.

    https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
    """
    return namespace.partition("{")[2].partition("}")[0] if "}" in namespace.partition("{")[2] else ""


def slot_key(namespace: str) -> str:
    """A key that never exists. By it, the node that has the slot of all keys is found."""
    return f"{namespace}pyworkers:slot"


def undivided(namespace: str) -> tuple[str, ...]:
    """The last keys of a script that writes several keys; none without a hash tag.

    While the slot of a cluster moves, some keys are on one node and some on another. A script would fail in
    the middle: at a missing key whose name it makes, or that it has emptied itself. With a key that never
    exists, the node refuses the whole script before it begins (TRYAGAIN).
    """
    return (slot_key(namespace),) if hash_tag(namespace) else ()


@dataclass(frozen=True, slots=True)
class Keys:
    """Builds the keys under one namespace. ``namespace`` is a prefix with its colon, or empty."""

    namespace: str = ""

    def _key(self, name: str) -> str:
        return f"{self.namespace}{name}"

    @property
    def queues(self) -> str:
        """SET of the names of all queues ever pushed to."""
        return self._key("queues")

    @property
    def schedule(self) -> str:
        """ZSET of jobs for later; the score is the epoch time in seconds."""
        return self._key("schedule")

    @property
    def retry(self) -> str:
        """ZSET of failed jobs that wait for their next attempt."""
        return self._key("retry")

    @property
    def dead(self) -> str:
        """ZSET of jobs that are not tried again; the score is the epoch time at which the job was added."""
        return self._key("dead")

    @property
    def goretry(self) -> str:
        """ZSET into which go-workers and go-workers2 put their own retries."""
        return self._key("goretry")

    @property
    def paused(self) -> str:
        """SET of the names of paused queues (Sidekiq Pro's)."""
        return self._key("paused")

    @property
    def cancelled(self) -> str:
        """ZSET of the ids of cancelled jobs; the score is the time of the cancellation, by Redis' clock."""
        return self._key("pyworkers:cancelled")

    def iteration(self, jid: str) -> str:
        """HASH with a TTL: the progress of an iterable job of Sidekiq from 7.3; its ``cancelled`` ends it."""
        return self._key(f"it-{jid}")

    def marks(self, date: str) -> str:
        """HASH with a TTL, Sidekiq's: the deployments of a day (``20261121``), minute in ISO 8601 → label."""
        return self._key(f"{date}-marks")

    def deploy_lock(self, label: str) -> str:
        """STRING with a TTL, Sidekiq's: a deployment with this label was marked in the last minute."""
        return self._key(f"deploylock-{label}")

    @property
    def watched(self) -> str:
        """STRING with a TTL: when a reader last asked for the servers' numbers, in µs by Redis' clock."""
        return self._key("pyworkers:watched")

    @property
    def owners(self) -> str:
        """HASH identity → JSON list of queues: the incarnations that may own in-progress lists."""
        return self._key("pyworkers:owners")

    @property
    def web_secret(self) -> str:
        """STRING with a TTL: the random bytes with which the dashboard signs its cookies and forms."""
        return self.own("web-secret")

    def web_ended(self, session: str) -> str:
        """STRING with a TTL: a logout has ended this session of the dashboard."""
        return self.own(f"web:ended:{session}")

    def enqueued(self, request: str) -> str:
        """HASH with a TTL: what a program enqueued by a request that it may send again."""
        return self.own(f"web:enqueued:{request}")

    def web_muted(self, code: str) -> str:
        """STRING with a TTL: how many problems of a kind the dashboard does not show on its overview."""
        return self.own(f"web:muted:{code}")

    @property
    def alarming(self) -> str:
        """STRING with a TTL: JSON, the process that watches now, and the alarms that it has."""
        return self.own("web:alarming")

    @property
    def alarms(self) -> str:
        """HASH name → JSON: the alarms that have begun, and what of them is still to be sent."""
        return self.own("web:alarms")

    @property
    def alarms_sent(self) -> str:
        """LIST of the last hundred messages of alarms, JSON, the latest first."""
        return self.own("web:alarms_sent")

    @property
    def suspects(self) -> str:
        """HASH with a TTL: an entry for each job of a dead server, and the suspect that each server runs."""
        return self.own("suspects")

    @property
    def batches(self) -> str:
        """ZSET of the ids of all batches; the score is the time at which they expire unless they change."""
        return self.own("batches")

    def batch(self, batch: str) -> str:
        """HASH of the numbers, times and callbacks of a batch; its other keys add ``:members`` …"""
        return self.own(f"batch:{batch}")

    @property
    def limits(self) -> str:
        """HASH key of a limit → its number and its window (``10 1.1``): the limits in use."""
        return self.own("limits")

    def limit(self, key: str) -> str:
        """ZSET of the jobs that hold a slot of a limit, or of the starts in its window, by their time."""
        return self.own(f"limit:{key}")

    def limit_waiting(self, key: str) -> str:
        """ZSET of the jobs that a limit has put off, by the time of their turn (ask.lua)."""
        return self.own(f"limit-waiting:{key}")

    def ordered(self, queue: str) -> str:
        """HASH: the active server of an ordered queue, its fencing token, and how long the head waits."""
        return self.own(f"ordered:{queue}")

    @property
    def deletions(self) -> str:
        """HASH with a TTL: by the id of a deletion that can be undone, its time and its numbers."""
        return self.own("deletions")

    def deletion(self, deletion: str) -> str:
        """HASH with a TTL: the jobs of a deletion, each with its place and its score, by their numbers."""
        return self.own(f"deletion:{deletion}")

    def own(self, name: str) -> str:
        """A key of a plug-in, as effects name it (protocol/effects)."""
        return self._key(f"pyworkers:{name}")

    def task(self, task: str) -> str:
        """HASH with a TTL: an action of the dashboard on many jobs, and how far it is."""
        return self.own(f"web:task:{task}")

    def task_alive(self, task: str) -> str:
        """STRING with a TTL: the process that works on the task runs."""
        return self.own(f"web:task:{task}:alive")

    def job(self, jid: str) -> str:
        """HASH with a TTL: the status of a tracked job (status.py)."""
        return self.own(f"job:{jid}")

    def result(self, jid: str) -> str:
        """STREAM with a TTL: one entry, the end of a tracked job, with its result."""
        return self.own(f"result:{jid}")

    def log(self, jid: str) -> str:
        """STREAM with a TTL: the lines that a job has written, and how its runs have ended."""
        return self.own(f"log:{jid}")

    def stack(self, jid: str) -> str:
        """STRING with a TTL: JSON, where a running job is, as its server has answered (stacks.py)."""
        return self.own(f"stack:{jid}")

    @property
    def finished(self) -> str:
        """SET with a TTL: the names of the lists of finished jobs."""
        return self.own("finished")

    def finished_jobs(self, name: str) -> str:
        """STREAM with a TTL: jobs that have ended, of a server, queue or class with ``keep``."""
        return self.own(f"finished:{name}")

    def unique(self, key: str) -> str:
        """STRING with a TTL: the jid of the job that holds the lock of its ``unique_key`` (unique.py)."""
        return self.own(f"unique:{key}")

    @property
    def locks(self) -> str:
        """SET of the names of locks (``unique:KEY``): those that the sweep checks, some perhaps released."""
        return self.own("locks")

    @property
    def awaited(self) -> str:
        """ZSET with a TTL: the jobs for whose end a program waits, by the time of its last ask."""
        return self.own("awaited")

    def sweep(self, name: str) -> str:
        """STRING ``turn``: the sweep that runs; HASH ``missing``: the jobs that it looks for (sweep.py)."""
        return self.own(f"sweep:{name}")

    @property
    def moves(self) -> str:
        """HASH queue → ``ID PORTION TARGET``: the moves of queues to another Redis that have not ended."""
        return self.own("moves")

    def moving(self, queue: str) -> str:
        """LIST of the jobs of a queue that are on their way to another Redis (moving.py)."""
        return self.own(f"moving:{queue}")

    def moved(self, move: str) -> str:
        """STRING, in the Redis to which a queue moves: the last portion that has arrived."""
        return self.own(f"moved:{move}")

    @property
    def wire(self) -> str:
        """ZSET with a TTL: the versions of the wire that live servers speak, by the time of the last note."""
        return self.own("wire")

    @property
    def thresholds(self) -> str:
        """HASH ``mail* oldest`` → ``300``: the thresholds of the dashboard that people have set."""
        return self.own("thresholds")

    @property
    def audit(self) -> str:
        """LIST of the last thousand actions of people, in the dashboard or by a command, the latest first."""
        return self.own("audit")

    @property
    def processes(self) -> str:
        """SET of the identities of all Sidekiq-like servers (contrib/docs/protocol.md, Servers)."""
        return self._key("processes")

    @property
    def process_cleanup(self) -> str:
        """STRING with a TTL: a server has recently searched ``processes`` for dead members."""
        return self._key("process_cleanup")

    def process(self, identity: str) -> str:
        """HASH with a TTL that describes one server: ``info``, ``busy``, ``beat`` …"""
        return self._key(identity)

    def work(self, identity: str) -> str:
        """HASH with a TTL: the jobs that one server runs, by the text that names their worker."""
        return self._key(f"{identity}:work")

    def workers(self, identity: str) -> str:
        """The same HASH as ``work``, under its name up to Sidekiq 6.4.1."""
        return self._key(f"{identity}:workers")

    def signals(self, identity: str) -> str:
        """LIST of signal names for one server, pushed on the left."""
        return self._key(f"{identity}-signals")

    @property
    def leader(self) -> str:
        """STRING: the identity of Sidekiq Enterprise's leader; only read."""
        return self._key("dear-leader")

    def lease(self, identity: str) -> str:
        """STRING with a TTL, which its master renews while it runs."""
        return self._key(f"pyworkers:lease:{identity}")

    def tombstone(self, identity: str) -> str:
        """STRING with a TTL: the lists of this incarnation were recovered by a peer."""
        return self._key(f"pyworkers:recovered:{identity}")

    def turn(self, key: str) -> str:
        """STRING with a TTL: the identity of the master that moves the due members of this sorted set now.

        Of ``owners``: of the master that watches the leases of all.
        """
        return self._key(f"pyworkers:turn:{key.removeprefix(self.namespace)}")

    def cron_slot(self, name: str, slot: int) -> str:
        """STRING with a TTL: the cron entry has fired for the slot (epoch seconds)."""
        return self._key(f"pyworkers:cron:{name}:{slot}")

    @property
    def cron_last(self) -> str:
        """HASH cron entry → the last slot that it fired for, or when it was first seen (epoch seconds)."""
        return self._key("pyworkers:cron")

    @property
    def cron_entries(self) -> str:
        """HASH name → JSON: the cron entries that were added while servers run."""
        return self._key("pyworkers:cron-entries")

    @property
    def cron_paused(self) -> str:
        """SET of the names of paused cron entries: of applications, configurations, and run time."""
        return self._key("pyworkers:cron-paused")

    @property
    def cron_version(self) -> str:
        """STRING that changes with each change of ``cron_entries`` and ``cron_paused``."""
        return self._key("pyworkers:cron-version")

    def cron_declared(self, identity: str) -> str:
        """STRING with a TTL: JSON list of the cron entries in the code and the configuration of a server."""
        return self._key(f"pyworkers:cron-declared:{identity}")

    def cron_runs(self, name: str) -> str:
        """HASH with a TTL: the last runs of a cron entry (flow/runs.py)."""
        return self._key(f"pyworkers:cron-runs:{name}")

    def queue(self, name: str) -> str:
        """LIST of waiting jobs; the left end is the newest."""
        return self._key(f"queue:{name}")

    def inprogress(self, name: str, identity: str) -> str:
        """LIST of the jobs of one queue that one server incarnation has taken (go-workers' shape)."""
        return self._key(f"queue:{name}:{identity}{INPROGRESS_SUFFIX}")

    def executions(self, moment: str) -> str:
        """HASH of Sidekiq's metrics of one or ten minutes: ``Class|p``, ``Class|f``, ``Class|ms``."""
        return self._key(f"j|{moment}")

    def runs(self, minute: int) -> str:
        """HASH with a TTL: ``QUEUE|p`` and ``QUEUE|f``, the runs and failures in a minute since the epoch."""
        return self.own(f"runs:{minute}")

    def busy(self, identity: str) -> str:
        """STRING with a TTL: ``BUSY CONCURRENCY``, the jobs that a server runs and can run at a time."""
        return self.own(f"busy:{identity}")

    def gauges(self, minutes: int) -> str:
        """STREAM with a TTL: the gauges of each minute, or of each ten minutes (gauges.py)."""
        return self.own(f"gauges:{minutes}")

    def durations(self, job_class: str, hour: int) -> str:
        """BITFIELD with a TTL: as ``histogram``, of one hour since the epoch, with numbers of 32 bits."""
        return self.own(f"durations:{job_class}:{hour}")

    def histogram(self, name: str) -> str:
        """BITFIELD of 26 numbers: the jobs of a class in one minute, counted by their duration."""
        return self._key(name)

    def stat(self, name: str, day: str = "") -> str:
        """STRING counter, ``day`` is ``YYYY-MM-DD`` in UTC.

        ``name`` is ``processed`` or ``failed``, as in Sidekiq, or another one of counted.py.
        """
        own = "" if name in ("processed", "failed") else "pyworkers:"
        return self._key(f"{own}stat:{name}:{day}" if day else f"{own}stat:{name}")
