"""Control messages: the messages between master and fork server.

Pure; used by both sides. Each message is a line of JSON on a Unix socket; the descriptors of a ``Spawn`` are
sent with its line (SCM_RIGHTS), in the same order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NotRequired, TypedDict, get_args

import simplejson

BOOT_FAILED = 70
"""Exit status of a worker whose start-up hook failed (EX_SOFTWARE of sysexits.h)."""
FDS_PER_SPAWN = 5
"""Workers' end of the job socket, write end of the outcome pipe, read end of the lifeline, write end of the
presence pipe, page."""


@dataclass(frozen=True, slots=True)
class Load:
    """Import the application. ``path`` goes in front of ``sys.path``, after the import of ``modules``."""

    app: str
    path: list[str] = field(default_factory=list)
    log_level: str = "info"
    log_format: str = "json"
    identity: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """The fields of ``Settings``."""
    rehearse: bool = False
    """Only import it, as a check: no hook runs."""
    describe: bool = False
    """Describe its jobs, for programs in other languages."""
    redis: dict[str, str] = field(default_factory=dict, repr=False)
    """The fields of ``[redis]``, for clients in the application. They may hold a password, so they are sent
    here and not in the environment."""
    other_redis: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    """The fields of each ``[redis.NAME]``."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """The names of the Redis of the queues that are not on the default one."""
    keys: str = ""
    """The file with the keys of encrypted arguments; empty: none."""
    modules: list[str] = field(default_factory=list)
    """The modules that each generation imports before the application, whose files cannot hide them."""
    argv: list[str] = field(default_factory=list)
    """The arguments of the server, which its first fork server has."""


class HandlerFacts(TypedDict):
    """The facts about a handler for the master, which has no user code."""

    name: str
    retry: bool | int
    dead: bool
    is_async: bool
    """True if the job is an ``async def``."""
    retry_for: NotRequired[float]
    """Seconds for which a job is retried; missing if not declared."""
    overdue: NotRequired[int]
    """The Fate of a job that is killed because of its time limit; missing if the rules of retries decide."""
    limited: NotRequired[bool]
    """True: its jobs keep to limits over all servers; missing for other handlers."""


class SizeFacts(TypedDict):
    """The declared number of jobs at a time and of processes, and the mode; None: not declared."""

    concurrency: int | None
    processes: int | str | None
    mode: str | None
    ordered: NotRequired[bool]
    """True: the jobs of the queue run one at a time over all servers; missing for other queues and groups."""
    skip_dead: NotRequired[bool]
    """False: a job that is dead pauses an ordered queue."""


class JobFacts(HandlerFacts):
    """The facts about a ``job`` handler."""

    envelope: dict[str, Any]
    """The fields that every job carries besides its arguments."""
    takes: NotRequired[list[str | int | None] | None]
    """Its parameters in words, the least and the most of its arguments (None: any number); None: unknown."""


class SharedQueue(SizeFacts):
    """A queue of ``job`` handlers, whose facts are found by the class of the job."""

    kind: Literal["job"]
    is_async: bool
    """True if all its jobs are ``async def``."""
    classes: NotRequired[list[str]]
    """The classes of its jobs."""


class OwnedQueue(HandlerFacts, SizeFacts):
    """A queue that one ``process`` handler owns, with the facts of that handler."""

    kind: Literal["process"]


QueueFacts = SharedQueue | OwnedQueue


class GroupFacts(SizeFacts):
    """A group, as ``Worker.group`` declares it."""

    queues: list[str] | dict[str, int]
    """In strict order, or the weight of each."""


class Manifest(TypedDict):
    """The declarations of an application, as JSON values (``Worker.manifest``)."""

    queues: dict[str, QueueFacts]
    groups: dict[str, GroupFacts]
    jobs: dict[str, JobFacts]
    """By class."""
    handlers: list[str]
    """The names of all handlers; outcomes refer to a handler by its position in this list, from 1."""
    cron: list[dict[str, Any]]
    """The fields of each ``CronEntry``."""
    hooks: dict[str, int]
    """How many hooks there are of each kind."""
    carry: NotRequired[list[str]]
    """The variables of structlog's context that jobs carry; missing if none."""
    client_middleware: NotRequired[bool]
    """True: it is around the jobs of cron entries, too, so a worker process makes them; missing if none."""


class HandlerChain(TypedDict):
    """The steps of one handler, for display."""

    handler: str
    queue: str
    links: list[tuple[str, str]]
    """The owner of each step (``built-in``, ``application``, ``handler``, ``job``) and its name, in the order
    in which a job passes them; links are around the job. JSON turns the pairs into lists."""


@dataclass(frozen=True, slots=True)
class Identify:
    """The server has a new identity: log it in the fork server and in the workers that start later."""

    identity: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The application is imported: its manifest, and the names of the threads that it has started."""

    manifest: Manifest
    threads: list[str]
    import_ms: int
    elsewhere: dict[str, str] = field(default_factory=dict, repr=False)
    """The fields of ``[redis]`` by which the application enqueues in jobs, or the ``error`` that prevents it.
    In a rehearsal, those by which it enqueues outside of workers."""
    chains: list[HandlerChain] = field(default_factory=list)
    """The steps of every handler. Only in a rehearsal."""
    client_links: list[str] = field(default_factory=list)
    """The names of the client middleware, the outermost first. Only in a rehearsal."""
    opened: list[str] = field(default_factory=list)
    """What the import has left open, and all workers share: sockets, devices, processes."""
    jobs: dict[str, Any] = field(default_factory=dict)
    """The jobs with the schemas of their parameters (typed/describing.py), if they were to be described."""


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The application cannot be imported; ``kind`` is ``import`` or ``config``."""

    kind: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork a worker for a group of queues; ``worker`` is the number for it in these messages."""

    worker: int
    group: str
    member: int
    """Its number in the group, by which its frames name it."""
    slots: int = 1
    """The number of jobs that it runs at once."""
    mode: str = "process"
    """How it runs them: ``process``, ``async`` or ``thread``."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """The worker runs."""

    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The system refused the fork: too little memory, or too many processes."""

    worker: int
    error: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker has exited and is reaped; ``status`` is from waitpid, ``rss_kb`` its peak memory."""

    worker: int
    pid: int
    status: int
    rss_kb: int


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run the application's hooks of one kind (``during_drain``) in a child of the fork server."""

    kind: str


@dataclass(frozen=True, slots=True)
class HooksRan:
    """The child of a ``RunHooks`` has exited, or could not be forked."""

    kind: str


AboutWorker = Spawned | SpawnFailed | Exited
ControlMessage = Load | Identify | Loaded | LoadFailed | Spawn | RunHooks | HooksRan | AboutWorker
_KINDS: dict[str, type[ControlMessage]] = {kind.__name__: kind for kind in get_args(ControlMessage)}


@dataclass(frozen=True, slots=True)
class Settings:
    """The part of the configuration that a worker process needs."""

    max_retries: int = 25
    backtrace: int = 20
    max_jobs_per_worker: int = 0
    max_memory_mb: int = 0
    keep: dict[str, Any] = field(default_factory=dict)
    """By queue, with ``""`` for the server: how many finished jobs are kept, for how many seconds, and if
    their arguments are, too; an empty list: none."""
    timeouts: dict[str, float] = field(default_factory=dict)
    """Time limits by queue, in seconds, that override the limits of the decorators; 0 is no limit."""
    carry: list[str] = field(default_factory=list)
    """The names of ``[log] carry``."""


def dump(message: ControlMessage) -> bytes:
    """The message as a line."""
    return (simplejson.dumps([type(message).__name__, asdict(message)]) + "\n").encode()


class LineReader:
    """Cuts a byte stream into messages; keeps an incomplete line until the rest arrives."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[ControlMessage]:
        """The messages that are complete with ``data``."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [_parse(line) for line in lines]


def _parse(line: bytes) -> ControlMessage:
    name, fields = simplejson.loads(line)
    return _KINDS[name](**fields)
