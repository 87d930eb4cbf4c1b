"""ProcessSet: the servers on this Redis, Sidekiq's included."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyworkers.api.actions import AbsentError, Action, Confirmation
from pyworkers.api.columns import Column, Kind, Table, Word, page_of
from pyworkers.api.groups import GROUP, GroupStats, by_state
from pyworkers.api.parameters import Parameter
from pyworkers.api.target import AtRedis, Countable, Where
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from pyworkers.store.calls import Steps
from pyworkers.store.flow import deadlines
from pyworkers.store.flow.classes import Declared, declarations
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes import cleanup, reading, signals
from pyworkers.store.processes.signals import Signal
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.views import servers
from pyworkers.store.views.servers import ServerView, WorkerView
from pyworkers.text import counted, duration, valid

# The first pause between two checks whether the servers have answered; each next one is longer by this.
_ANSWER_S, _SLOWER = 0.02, 1.5
_MOST_GROUPS = 6
_LEASES = {True: "held", False: "lost", None: ""}


class Process:
    """One server, as of its last heartbeat; ``about`` holds all its fields."""

    def __init__(self, view: ServerView, admin: Admin) -> None:
        self.view = view
        self.about = view.about
        self._admin = admin

    def __repr__(self) -> str:
        return f"Process({self.identity!r})"

    @property
    def identity(self) -> str:
        """The unique name of the server: host, process id and nonce."""
        return self.about.identity

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the server takes jobs from."""
        return self.about.queues

    @property
    def busy(self) -> int:
        """The number of its running jobs."""
        return self.about.busy

    @property
    def concurrency(self) -> int:
        """The number of jobs that it can run at a time."""
        return self.about.concurrency

    @property
    def stopping(self) -> bool:
        """True if the server is quiet or stopping."""
        return self.about.quiet

    @property
    def stops_at(self) -> float | None:
        """The end of a stop that has begun, in epoch seconds; None for other programs' servers."""
        return self.about.stops_at

    def as_dict(self) -> dict[str, Any]:
        """The server for JSON; times are in epoch seconds."""
        return PROCESS.as_dict(self.view)

    def silent(self, now: float) -> bool:
        """True without a heartbeat for a minute: go-workers2's descriptions remain after an exit."""
        return self.about.silent(now)

    def quiet(self) -> None:
        """Signal the server to take no more jobs; it reacts within 10 s. Raises PyworkersError."""
        self.send(Signal.QUIET)

    def stop(self) -> None:
        """Signal the server to stop; it reacts within 10 s. Raises PyworkersError."""
        self.send(Signal.STOP)

    def reload(self) -> None:
        """Signal the server to load code and configuration again; it reacts within 10 s.

        Raises PyworkersError, for any other program's server as well.
        """
        self.send(Signal.RELOAD)

    def dump_threads(self) -> None:
        """Signal the server to log the stacks of its running jobs. Raises PyworkersError."""
        self.send(Signal.DUMP)

    def refusal(self, word: Signal) -> str:
        """Why the server must not get this signal; empty if it may."""
        return refusal(self.about, word)

    def send(self, word: Signal) -> None:
        """Send a signal; the server reacts within 10 s. Raises PyworkersError, with its ``refusal``."""
        if reason := self.refusal(word):
            raise PyworkersError(reason)
        self._admin.run(signals.signal(self._admin.keys, self.identity, word))


class ProcessSet(AtRedis, Countable):
    """The live servers, in no order. All methods raise RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        super().__init__(where, namespace=namespace)
        self._may_watch = True

    def __iter__(self) -> Iterator[Process]:
        keys = self._admin.keys
        names = self._admin.run(servers.identities(keys))
        return (Process(view, self._admin) for view in self._admin.run(servers.read_servers(keys, names)))

    def refresh(self, timeout: float = 1.5) -> None:
        """Request that pyworkers servers write their counters and jobs now, and each second for the next ten.

        Returns when all have done so, at most ``timeout`` seconds later. Returns at once if the user may not
        write to Redis: then the numbers are from the last heartbeat. Raises RedisUnavailableError.
        """
        if self._may_watch:
            try:
                look = self._admin.run(signals.watch(self._admin.keys))
            except StoreError:
                self._may_watch = False
            else:
                deadline, pause_s = deadlines.now_s() + timeout, _ANSWER_S
                while not self._have_answered(look) and (left_s := deadline - deadlines.now_s()) > 0:
                    time.sleep(min(pause_s, left_s))
                    # A look reads all servers, and one that hangs does not answer.
                    pause_s *= _SLOWER

    def _have_answered(self, look: int) -> bool:
        return self._admin.run(signals.answered(self._admin.keys, look))

    def declared(self) -> list[Declared]:
        """The servers of pyworkers that describe their classes, each with them, by identity."""
        return self._admin.run(declarations(self._admin.keys))

    @property
    def size(self) -> int:
        """The number of registered servers; a few of them may have crashed."""
        return self._admin.run(reading.registered(self._admin.keys))

    def find(self, identity: str) -> Process | None:
        """The server with that identity; None if there is none."""
        view = self._admin.run(read_process(self._admin.keys, identity))
        return Process(view, self._admin) if view is not None and view.registered else None

    def accepting(self, word: Signal) -> tuple[list[Process], list[Process]]:
        """The servers that accept a signal, and those that refuse it; both by identity."""
        found = sorted(self, key=lambda process: process.identity)
        accepting = [process for process in found if not process.refusal(word)]
        return accepting, [process for process in found if process.refusal(word)]

    def send(self, word: Signal) -> int:
        """Send a signal to all servers that accept it; they react within 10 s. Returns their number."""
        accepting, _ = self.accepting(word)
        for process in accepting:
            process.send(word)
        return len(accepting)

    @property
    def leader(self) -> str:
        """The identity of Sidekiq Enterprise's leader; empty if there is none."""
        return self._admin.run(reading.leader(self._admin.keys))

    def cleanup(self) -> int:
        """Remove crashed processes, at most once a minute for all callers; returns their number."""
        return len(self._admin.run(cleanup.cleanup(self._admin.keys)))


@dataclass(frozen=True, slots=True)
class ProcessPage:
    """Some of the servers, by identity, from rank ``first`` on; ``total`` are registered.

    ``at`` is the time by Redis' clock, in epoch seconds.
    """

    first: int
    total: int
    at: float
    servers: Sequence[ServerView]

    def as_dict(self) -> dict[str, Any]:
        """The page for JSON."""
        return PROCESSES.as_dict(self)


def read_processes(keys: Keys, first: int = 0, count: int = 50) -> Steps[ProcessPage]:
    """A page of the servers. One that has crashed may be missing on it."""
    at = yield from clock()
    names = yield from servers.identities(keys)
    found = yield from servers.read_servers(keys, names[first : first + count])
    return ProcessPage(first, len(names), at, found)


def read_process(keys: Keys, identity: str) -> Steps[ServerView | None]:
    """One server; None if Redis has no description of it, which expires 90 s after the last heartbeat."""
    return next(iter((yield from servers.read_servers(keys, [identity]))), None)


def state_of(view: ServerView, now: float) -> str:
    """``gone``, ``lost`` (its lease has expired), or a state of ``ProcessView``."""
    if not view.registered:
        return "gone"
    return "lost" if view.leased is False else view.about.state(now)


# By state: tone, word, and its meaning.
STATE_WORDS = {
    "running": Word("running", "good", usual=True),
    "quiet": Word(
        "quiet", "warn", "It takes no more jobs. Servers of other programs are quiet while they stop, too."
    ),
    "stopping": Word("stopping", "warn", "It takes no more jobs, and ends after those that run."),
    "failing": Word("failing:", "bad", "A group has no worker and cannot start one: no job of it runs."),
    "older": Word("older version", "warn", "It knows fewer effects of jobs than this version."),
    "lost": Word("lease lost", "bad", "Its lease has expired: it has crashed, or it cannot reach Redis."),
    "silent": Word("silent", "bad", "It has written no heartbeat for a minute."),
    "gone": Word("gone", "bad", "It has stopped or crashed."),
}


def words_of(about: ProcessView, state: str, now: float) -> Sequence[Word]:
    """The state of a server; of a stop also the time that is left."""
    if state == "failing":
        return [replace(STATE_WORDS[state], name=about.failing)]
    if state == "stopping" and about.stops_at is not None:
        left = max(0, int(about.stops_at - now))
        return [STATE_WORDS[state], Word(f"{duration(left) if left else '0s'} left")]
    return [STATE_WORDS[state]]


def _workers(about: ProcessView, _now: float) -> str:
    several = len(about.groups) > 1
    texts = (
        f"{group.name}: {by_state(group.workers)}" if several else by_state(group.workers)
        for group in about.groups[:_MOST_GROUPS]
    )
    return "; ".join(texts)


def _restarts(view: ServerView) -> int:
    return sum(group.restarts for group in view.about.groups)


SERVER: Table[ProcessView] = Table(
    "Server",
    Column("identity", title="Identity", place="servers"),
    Column("hostname"),
    Column("pid", Kind.COUNT),
    Column("tag"),
    Column("version", title="Version"),
    Column("flow", Kind.COUNT, about="The version of the effects of jobs that it knows."),
    Column("started_at", Kind.MOMENT, "Started"),
    Column("beat", Kind.MOMENT, "Beat", live=True, about="The time of these numbers."),
    Column("busy", Kind.COUNT, "Busy", live=True),
    Column("concurrency", Kind.COUNT, "Of", about="The jobs that it can run at a time."),
    Column("rss_kb", Kind.MEMORY, "Memory", live=True, about="Its memory in KiB.", cut=2),
    Column("rtt_us", Kind.COUNT),
    Column("quiet", Kind.FLAG),
    Column("stops_at", Kind.MOMENT, nullable=True),
    Column("embedded", Kind.FLAG),
    Column("queues", Kind.TEXTS, "Queues", cut=1),
    Column("labels", Kind.TEXTS),
    Column(
        "groups", Kind.RECORDS, table=GROUP,
        value=lambda about, _now: [GroupStats.of([group]) for group in about.groups],
    ),
    Column("state", Kind.WORDS, "State", value=lambda about, now: words_of(about, about.state(now), now)),
    Column("by_state", title="Workers", value=_workers, only_shown=True, live=True),
)  # fmt: skip
WORKER: Table[WorkerView] = Table(
    "Worker",
    Column("group", title="Group"),
    Column("pid", Kind.COUNT, "Process"),
    Column("state", title="State"),
    Column("rss_kb", Kind.MEMORY, "Memory"),
    Column("jobs_done", Kind.COUNT, "Jobs done"),
    Column("started_at", Kind.MOMENT, "Started"),
)
PROCESS: Table[ServerView] = Table(
    "Process",
    *SERVER.within(lambda view: view.about),
    Column("registered", Kind.FLAG),
    Column("leased", Kind.FLAG, nullable=True),
    Column("lease", title="Lease", value=lambda view, _now: _LEASES[view.leased], only_shown=True),
    Column("active", Kind.TEXTS),
    Column("restarts", Kind.COUNT, value=lambda view, _now: _restarts(view)),
    Column(
        "restarted", Kind.COUNT, "Restarts", only_shown=True, live=True,
        value=lambda view, _now: _restarts(view) if view.about.groups else None,
    ),
    Column("workers", Kind.RECORDS, table=WORKER),
    Column(
        "condition", Kind.WORDS, "State", live=True,
        value=lambda view, now: words_of(view.about, state_of(view, now), now),
    ),
)  # fmt: skip
PROCESSES = page_of("Servers", "servers", PROCESS)


def refusal(about: ProcessView, word: Signal) -> str:
    """Why a server must not get this signal; empty if it may."""
    if about.embedded:
        return f"{valid(about.identity)} is embedded in another program: quiet or stop it there"
    if word is Signal.RELOAD and not about.reloads:
        program = "an earlier version of pyworkers" if about.look is not None else "another program"
        return f"{valid(about.identity)} is a server of {program}, which does not reload: restart it"
    return ""


def request_numbers(keys: Keys) -> Steps[bool]:
    """Request what ``ProcessSet.refresh`` does, without waiting; False if the user may not write to Redis."""
    try:
        yield from signals.watch(keys)
    except StoreError:
        return False
    return True


def _send(word: Signal, admin: Admin, identity: str) -> None:
    process = ProcessSet(admin).find(identity)
    if process is None:
        raise AbsentError("server", f"{identity} is gone: nothing was sent")
    process.send(word)


def _ask_all(word: Signal, then: str, admin: Admin) -> Confirmation:
    accepting, refusing = ProcessSet(admin).accepting(word)
    others = "is" if len(refusing) == 1 else "are"
    why = "embedded in another program"
    if word is Signal.RELOAD:
        why += ", of another program, or of an earlier version"
    name = word.name.lower()
    title = f"{name.capitalize()} all servers?"
    if not accepting:
        rest = f": {len(refusing):,} {others} {why}" if refusing else ""
        return Confirmation(title, f"No server can get this signal{rest}.")
    text = f"{counted(len(accepting), 'server')} will get the signal: each {then} within 10 seconds."
    if refusing:
        text += f" {len(refusing):,} {others} left out: {why}."
    return Confirmation(title, text, f"{name.capitalize()} {counted(len(accepting), 'server')}")


def _signal(word: Signal, about: str, then: str, command: str) -> tuple[Action[ServerView], Action[Any]]:
    """The signal as an action on one server, and on all; ``then``: what a server does after it."""
    name, dangerous = word.name.lower(), word is Signal.STOP
    one: Action[ServerView] = Action(
        f"server.{name}",
        f"The server: {about}",
        [Parameter("identity", "The identity of the server.", required=True)],
        partial(_send, word),
        done=f"Sent {name} to {{identity}}: it {then} within 10 seconds",
        dangerous=dangerous,
        offered=lambda view: not refusal(view.about, word),
        several="identities",
        command=command,
    )
    every: Action[Any] = Action(
        f"server.{name}",
        f"All servers: {about}",
        [],
        lambda admin: ProcessSet(admin).send(word),
        done=(sent := f"Sent {name} to {{count}}: each {then} within 10 seconds"),
        unchanged=sent,
        counts="server",
        target="all servers",
        dangerous=dangerous,
        asks=partial(_ask_all, word, then),
    )
    return one, every


_BOTH = [
    _signal(
        Signal.QUIET,
        "take no more jobs.",
        "takes no more jobs",
        """Make servers take no more jobs.

    Running jobs continue; to take jobs again, a server must be restarted. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers quiet web-1:4711
    """,
    ),
    _signal(
        Signal.STOP,
        "stop.",
        "stops after its jobs",
        """Stop servers: finish running jobs, then exit.

    Jobs that still run after the shutdown timeout are put back. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers stop web-1:4711
    """,
    ),
    _signal(
        Signal.RELOAD,
        "load code and configuration again.",
        "loads its code and configuration again",
        """Make servers reload their code and configuration.

    As HUP does: running jobs finish with the old code; after an error, the old code and configuration
    continue. Only servers of pyworkers reload: --all leaves other programs' servers out. IDENTITY is one of
    `pyworkers processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers reload web-1:4711
    """,
    ),
]
ACTIONS = tuple(one for one, _ in _BOTH)
ACTIONS_ON_ALL = tuple(every for _, every in _BOTH)
