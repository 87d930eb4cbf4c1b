"""``pyworkers status`` and ``result``: show a job, and what it returned. Run by people and scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.cli.params import parse_duration, reads
from pyworkers.cli.text import printable
from pyworkers.client import Client
from pyworkers.errors import JobFailedError
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.status import JobState, JobStatus


@click.command()
@click.argument("jid", metavar="JID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
@click.pass_context
def status(ctx: click.Context, source: Source, jid: str, as_json: bool) -> None:
    """Show where a job is, and how far.

    A job that is enqueued with track=SECONDS shows its state, its progress and its last error. Any other is
    looked for in all queues and sets, which takes seconds with millions of jobs.

    Exit code 1 if nothing is known of the job.

    \b
    Example: pyworkers status b4a577edbccf1d805744efa9
    """
    client = Client.from_config(source.redis())
    found = client.status(jid)
    if found.state is JobState.UNKNOWN:
        found = client.find(jid)
    click.echo(json.dumps(found.as_dict()) if as_json else "\n".join(_shown(found)))
    if found.state is JobState.UNKNOWN:
        ctx.exit(1)


@click.command()
@click.argument("jid", metavar="JID")
@click.option(
    "--timeout",
    callback=reads(parse_duration),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait, e.g. 250ms, 5m.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object of state, and result or error.")
@config_options
@click.pass_context
def result(ctx: click.Context, source: Source, jid: str, timeout: float, as_json: bool) -> None:
    """Print what a job returned, as JSON; wait for its end.

    The job must be enqueued with track=SECONDS. Exit code 1 if it has failed, if it has not ended in the
    time, or if nothing is known of it.

    \b
    Example: pyworkers result b4a577edbccf1d805744efa9 --timeout 1m
    """
    client = Client.from_config(source.redis())
    try:
        value = client.result(jid, timeout)
    except JobFailedError as error:
        if not as_json:
            raise
        about = {"state": error.state, "error_class": error.error_class, "error": error.error}
        click.echo(json.dumps(about))
        ctx.exit(1)
    click.echo(encode({"state": "done", "result": value} if as_json else value))


def _shown(status: JobStatus) -> Iterator[str]:
    yield f"state     {status.state}"
    if status.queue:
        yield f"queue     {printable(status.queue)}"
    if status.attempt:
        yield f"failures  {status.attempt}"
    if progress := status.progress:
        total = "" if progress.total is None else f" of {progress.total:g}"
        yield f"progress  {progress.done:g}{total}  {printable(progress.text)}".rstrip()
    for name, time in (("started", status.started_at), ("finished", status.finished_at)):
        if time is not None:
            yield f"{name:<9} {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if status.error:
        yield f"error     {printable(status.error)}"
