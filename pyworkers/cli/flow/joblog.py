"""``pyworkers logs``: what a job has written while it ran. Run by people and scripts."""

from __future__ import annotations

import json
import time
from functools import partial

import click

from pyworkers.api.joblog import JobLog, fields_text, read_joblog
from pyworkers.api.target import Admin
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.flow.joblog import LogLine

_APART_S = 0.5


@click.command()
@click.argument("jid", metavar="JID")
@click.option("--follow", "-f", is_flag=True, help="Wait for further lines, until the job has ended.")
@json_option
@utc_option
@redis_options
def logs(source: ConfigOptions, jid: str, follow: bool, as_json: bool, times: Times) -> None:
    """Show the log of a job.

    The log has the lines that the job wrote by message.log(…) and, with track=SECONDS, its other log lines:
    the latest 64 KB. Each run ends with the state of the job. With --follow, --json prints an object a line.

    Exit code 1 if the job is unknown.

    \b
    Example: pyworkers logs b4a577edbccf1d805744efa9 --follow
    """
    located = source.targets().first(partial(_read, jid))
    if located is None:
        raise PyworkersError(
            f"no log of the job {printable(jid)}",
            hint="a job has one once it calls message.log(…); or its log lines, with track=SECONDS",
        )
    target, found = located
    if as_json and not follow:
        print_json({**target.as_dict(), **found.as_dict()})
        return
    while True:
        for line in found.lines:
            click.echo(json.dumps(line.as_dict()) if as_json else _shown(line, times))
        if not follow or found.ended:
            return
        time.sleep(_APART_S)
        found = _read(jid, target.config, found.last) or found


def _read(jid: str, redis: RedisConfig, after: str = "") -> JobLog | None:
    admin = Admin(redis)
    return admin.run(read_joblog(admin.keys, jid, after))


def _shown(line: LogLine, times: Times) -> str:
    when = times.exact(line.at) if line.at is not None else "-"
    words = [when, f"{line.level or line.state:<7}", printable(line.text), printable(fields_text(line))]
    return "  ".join(word for word in words if word).rstrip()
