"""``pyworkers run``: starts the server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.params import parse_duration, parse_queue, reads
from pyworkers.cli.setup.foreign import RunCommand
from pyworkers.config.fields import LOG_FORMATS, LOG_LEVELS
from pyworkers.config.groups import Only, Queues, parse_queues
from pyworkers.server import serve


def _parse_queue(value: str) -> tuple[str, int | None]:
    name, number = _numbered(value)
    return parse_queue(name), number


def _parse_group(value: str) -> tuple[str, tuple[Queues, int | None]]:
    text, number = _numbered(value)
    queues = parse_queues(text)
    return ",".join(queues), (queues, number)


def _numbered(value: str) -> tuple[str, int | None]:
    """The text before the last ``=``, and the number after it. Raises ValueError."""
    text, equals, number = value.rpartition("=")
    if not equals:
        return value, None
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"{number!r} is not a number of jobs; write {text}=10")
    return text, int(number)


def _only(
    queues: Sequence[tuple[str, int | None]], groups: Sequence[tuple[str, tuple[Queues, int | None]]]
) -> Only:
    """What the server serves, by its options; of one queue, the last number counts."""
    names = [name for name, _ in groups]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.BadParameter(f"the group {twice[0]} is named twice", param_hint="'--group'")
    return Only(dict(queues), dict(groups))


def _check(source: ConfigOptions, drain_s: float | None, *, once: bool, reload: bool) -> None:
    if drain_s is not None and once:
        raise click.UsageError("--once runs one job, --drain all: use one of them")
    if reload and (once or drain_s is not None):
        raise click.UsageError("--reload is for a server that runs until it is stopped")
    if isinstance(source.path, Path) and source.path.name.isdecimal() and not source.path.exists():
        raise click.UsageError(
            f"-c is --config: no such file {source.name!r}; a concurrency is -q NAME={source.name}"
        )


@click.command(cls=RunCommand)
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker to serve, e.g. tasks:worker.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=CONCURRENCY]",
    callback=reads(_parse_queue),
    help="Serve only this queue, with this many jobs at a time; may be repeated.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="QUEUES[=CONCURRENCY]",
    callback=reads(_parse_group),
    help="Serve only these queues, with the same workers: a,b in this order, or a:5,b:2 by weight; may be "
    "repeated.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level to log.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Format of the log lines.")
@click.option("--json", "as_json", is_flag=True, help="Log in JSON: --log-format json.")
@click.option("--fail-fast", is_flag=True, help="Exit with code 4 if Redis is unreachable at the start.")
@click.option(
    "--drain",
    "drain_s",
    is_flag=False,
    flag_value="10s",
    metavar="[DURATION]",
    callback=reads(parse_duration),
    help="Run all waiting jobs, and those due within 10 s (--drain=1m: a minute); then exit.",
)
@click.option("--once", is_flag=True, help="Run one job if one waits; then exit.")
@click.option("--reload", is_flag=True, help="Reload when code or configuration changes (extra watch).")
@config_options
def run(
    source: ConfigOptions,
    app: str | None,
    queues: Sequence[tuple[str, int | None]],
    groups: Sequence[tuple[str, tuple[Queues, int | None]]],
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
    fail_fast: bool,
    drain_s: float | None,
    once: bool,
    reload: bool,
) -> None:
    """Run the server: execute jobs until a signal stops it.

    \b
    Signals: TERM, INT  finish running jobs (server.shutdown_timeout), then exit 0
             a 2nd INT  put running jobs back into their queues at once, then exit 0
             TSTP       fetch no more jobs
             HUP        reload the configuration and the application without a gap
             USR2       start a new server from the installed code; stop when it fetches
             TTIN       log the state of the server and the stacks of all workers

    With --reload, changed files have the effect of HUP: after an error, the old code continues. The watched
    folders are the working directory and the folder of the configuration file.

    With --drain, the server ends when its queues are empty, no job runs, and no job is scheduled or to be
    retried within ten seconds. It also runs the jobs that these jobs enqueue. It does not wait for a paused
    queue, nor for jobs that other servers run. A rate or a limit of a queue delays the end; an ordered queue
    whose first job is to be retried later does not. With --once, it ends after one job, or at once if none
    waits. The last line of the log, server.drained, has the number of jobs that ran, and the number of jobs
    that are left.

    Exit codes: 0 stopped by a signal, or drained; 1 unexpected error, 2 configuration, 3 application import,
    4 Redis unreachable with --fail-fast, 5 a signal has stopped --drain or --once before its end.

    \b
    Examples: pyworkers run --config workers.toml
              pyworkers run --app tasks:worker --drain && echo migrated
    """
    _check(source, drain_s, once=once, reload=reload)
    only = _only(queues, groups)
    given = {"app": app, "log.level": log_level, "log.format": "json" if as_json else log_format}
    config, again = source.load(given), partial(source.load_again, given)
    serve(config, only, fail_fast, again, reload=reload, drain_s=drain_s, once=once)
