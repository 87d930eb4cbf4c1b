"""What the harness knows about a job server: how to install it, how to start it, what it promises.

Each file in ``peers/`` describes one, with its program in ``programs/``. A program is called in the same way
in every language, with the environment that ``Site`` makes:

    PROGRAM push KIND COUNT one|bulk                enqueue
    PROGRAM batch KIND COUNT one|bulk               enqueue as members of one batch
    PROGRAM pace COUNT INTERVAL_MS                  enqueue "stamp" jobs one by one
    PROGRAM later KIND COUNT SECONDS INTERVAL_MS    schedule jobs, the first due SECONDS from now
    PROGRAM compare COUNT                           enqueue by several producers in turn, print speeds

each of which, but the last, prints {"seconds": …} of this alone; and its job does what its first argument,
the kind, says:

    noop         nothing
    cpu          uses 1 ms of CPU time
    sleep        sleeps for 10 ms
    second       sleeps for a second
    stamp        writes down how long ago it was enqueued, or due (its second argument, Unix time in ns)
    blob         nothing; its second argument is a text of 1 MB

Every job ends by counting itself in the folder ``BENCH_FOLDER``, outside Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contrib.bench.environments import Environment

Command = tuple[str, ...]


@dataclass(frozen=True)
class Serving:
    """How a peer is to serve: what its commands may depend on."""

    port: int
    """Of the Redis on 127.0.0.1."""
    workers: int = 10
    line_log: str = ""
    """The file for its own log with one event per job; empty: log warnings only."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@dataclass(frozen=True)
class Peer:
    """A job server with the settings that it is measured with."""

    name: str
    environment: Environment
    program: Command
    serve: Callable[[Serving], Sequence[Command]]
    """The commands that start its processes: mostly one."""
    delivery: str
    """What happens to the jobs of a process that is killed."""
    settings: str
    """What differs from its defaults, and why."""
    expected: int
    """No-op jobs a second, roughly: sizes the loads."""
    few: bool = True
    """Whether it takes part in the measurements with ten workers."""
    many: bool = False
    """Whether it takes part in those with hundreds: its jobs share a process."""
    bulk: bool = False
    """Whether it can enqueue many jobs at once."""
    batches: bool = False
    """Whether its program has ``batch``."""
    compares: bool = False
    """Whether its program has ``compare COUNT``, and reports the speed of producers in turn."""
    later: bool = True
    """Whether it can schedule jobs without another process."""
    schedule_key: str = ""
    """The sorted set with the jobs that are not due yet, if it has one."""
    queue_key: str = ""
    """The list with the jobs that wait, if they are JSON with a ``jid``."""
    help: Command = ()
    """Its command line's ``--help``."""
    variables: tuple[tuple[str, str], ...] = ()
    """More environment variables for server and program."""


def to_line_log(*command: str) -> Command:
    """The command with its standard error in the log file of ``Serving.line_log``."""
    return ("sh", "-c", 'exec "$@" 2>>"$BENCH_LINE_LOG"', "sh", *command)
