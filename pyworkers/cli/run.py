"""``pyworkers run``: starts the server."""

from __future__ import annotations

from collections.abc import Mapping

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.protocol.keys import check_queue_name
from pyworkers.server import serve

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")


def _parse_queues(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, int | None]:
    return dict(_parse_queue(value) for value in values)


def _parse_queue(value: str) -> tuple[str, int | None]:
    name, equals, number = value.rpartition("=")
    if not equals:
        name, number = value, ""
    try:
        check_queue_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not equals:
        return name, None
    if not number.isdecimal() or int(number) < 1:
        raise click.BadParameter(f"{number!r} is not a number of workers; write {name}=10")
    return name, int(number)


@click.command()
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker to serve, e.g. tasks:worker.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=CONCURRENCY]",
    callback=_parse_queues,
    help="Serve only this queue, with this many workers; may be repeated.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), help="Lowest level to log.")
@click.option("--log-format", type=click.Choice(_FORMATS), help="Format of the log lines.")
@click.option("--fail-fast", is_flag=True, help="Exit with code 4 if Redis is unreachable at the start.")
@config_options
def run(
    source: Source,
    app: str | None,
    queues: Mapping[str, int | None],
    log_level: str | None,
    log_format: str | None,
    fail_fast: bool,
) -> None:
    """Run the server: execute jobs until a signal stops it.

    \b
    Signals: TERM, INT  finish running jobs (server.shutdown_timeout), then exit 0
             TSTP       fetch nothing more
             HUP        reload the application without a gap
             TTIN       log the state of the server and the stacks of all workers

    Exit codes: 0 stopped by a signal, 1 unexpected error, 2 configuration, 3 application import, 4 Redis
    unreachable with --fail-fast.
    """
    config = source.load({"app": app, "log.level": log_level, "log.format": log_format})
    serve(config, queues, fail_fast)
