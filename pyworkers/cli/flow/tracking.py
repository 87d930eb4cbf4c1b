"""``pyworkers status`` and ``result``: show a job, and what it returned. Run by people and scripts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import click

from pyworkers.api import BatchEntry, BatchSet
from pyworkers.api.record import STATUS
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.params import parse_duration, reads
from pyworkers.cli.text import printable, printable_json
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import JobFailedError, PyworkersError, ResultTimeout, UntrackedJobError
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.status import UNKNOWN, JobState, JobStatus

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})
_FACTS = STATUS.shown("state", "queue", "failures", "done", "started_at", "finished_at", "error")


@click.command()
@click.argument("jid", metavar="JID")
@json_option
@utc_option
@redis_options
@click.pass_context
def status(ctx: click.Context, source: ConfigOptions, jid: str, as_json: bool, times: Times) -> None:
    """Show the state and the progress of a job.

    A job that is enqueued with track=SECONDS shows its state, its progress and its last error. For any other
    job, all queues and sets are searched, which takes seconds with millions of jobs.

    Exit code 1 if the job is unknown.

    \b
    Example: pyworkers status b4a577edbccf1d805744efa9
    """
    targets = source.targets()
    located = targets.first(partial(_tracked, jid), partial(_found, jid))
    found = UNKNOWN if located is None else located[1]
    if as_json:
        print_json({**({} if located is None else located[0].as_dict()), **found.as_dict()})
    else:
        click.echo("\n".join(Form(time.time(), times).facts(_FACTS, found)))
    if found.state is JobState.UNKNOWN:
        if batch := targets.first(partial(_batch, jid)):
            shown, kind = printable(jid), printable(batch[1].status.kind)
            click.echo(f"{shown} is a {kind}: pyworkers batches show {shown}", err=True)
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
@json_option
@redis_options
@click.pass_context
def result(ctx: click.Context, source: ConfigOptions, jid: str, timeout: float, as_json: bool) -> None:
    """Print the result of a job as JSON; wait for its end.

    The job must be enqueued with track=SECONDS; JID may also be the id of a batch, chain or group. Exit code
    1 if it has failed, if it has not ended in the time, or if it is unknown.

    \b
    Example: pyworkers result b4a577edbccf1d805744efa9 --timeout 1m
    """
    targets, located = source.targets(), None
    if targets.several:
        located = targets.first(partial(_tracked, jid), partial(_batch, jid), partial(_found, jid))
    redis = source.redis() if located is None else located[0].config
    if not print_result(redis, jid, timeout, as_json):
        ctx.exit(1)


def _tracked(jid: str, redis: RedisConfig) -> JobStatus | None:
    return _known(Client.from_config(redis).status(jid))


def _found(jid: str, redis: RedisConfig) -> JobStatus | None:
    return _known(Client.from_config(redis).find(jid))


def _batch(jid: str, redis: RedisConfig) -> BatchEntry | None:
    return BatchSet(redis).find(jid)


def _known(status: JobStatus) -> JobStatus | None:
    return None if status.state is JobState.UNKNOWN else status


def print_result(
    config: RedisConfig, jid: str, timeout_s: float, as_json: bool, facts: Mapping[str, Any] = _NO_FACTS
) -> bool:
    """Wait for what a job returned, and print it; False if the JSON says that it has failed.

    ``facts``: more members of the JSON. Raises PyworkersError, with the id.
    """
    try:
        value = Client.from_config(config).result(jid, timeout_s)
    except JobFailedError as error:
        if not as_json:
            raise _error_of(config, jid, error) from None
        print_json({**facts, "state": error.state, "error_class": error.error_class, "error": error.error})
        return False
    except (UntrackedJobError, ResultTimeout) as error:
        raise _error_of(config, jid, error) from None
    answer = {**facts, "state": "done", "result": value} if as_json else value
    click.echo(printable_json(encode(answer)))
    return True


def _error_of(
    config: RedisConfig, jid: str, error: JobFailedError | UntrackedJobError | ResultTimeout
) -> PyworkersError:
    """The error, in the words for a batch, chain or group if the id belongs to one."""
    batch = BatchSet(config).find(jid)
    kind = printable(batch.status.kind) if batch else "job"
    if isinstance(error, JobFailedError):
        # One line, as of `pyworkers status`.
        return JobFailedError(jid, error.state, error.error_class, printable(error.error), kind=kind)
    if batch is None:
        return error
    if isinstance(error, ResultTimeout):
        return ResultTimeout(f"the {kind} {jid} has not ended in the time")
    reason = f"no result of the {kind} {jid}: it is {batch.status.state}"
    return UntrackedJobError(reason, hint=f"its members: pyworkers batches show {jid}")
