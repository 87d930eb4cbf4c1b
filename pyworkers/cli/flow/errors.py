"""``pyworkers errors``: the jobs of ``retries`` and ``dead``, grouped by their errors.

Run by people and scripts.
"""

from __future__ import annotations

import time
from math import inf

import click

from pyworkers.api.browse.errors import ERROR, MOST_JOBS, ErrorPage, read_errors
from pyworkers.api.target import admin_of
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import Located
from pyworkers.config.fields import RedisConfig

_NONE = "No errors: no job waits for a retry, and none is dead."


@click.command("errors")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    default=MOST_JOBS,
    show_default=True,
    help="Read about N jobs, of both sets in turn; 0 for all.",
)
@json_option
@utc_option
@redis_options
def errors(source: ConfigOptions, limit: int, as_json: bool, times: Times) -> None:
    """Show the errors of retries and dead jobs, the most frequent first.

    Errors of one cause are one group: # replaces numbers, ids and quoted values. --error-like selects the
    jobs of a group in the commands of retries and dead.

    \b
    Examples: pyworkers errors --json
              pyworkers dead retry --error-like 'TimeoutError: no answer in #'
    """

    def read(redis: RedisConfig) -> ErrorPage:
        admin = admin_of(redis, None)
        return admin.run(read_errors(admin.keys, most=limit or inf, budget_s=inf))

    targets = source.targets()
    pages = targets.gather(read)
    found = [Located(page.redis, group) for page in pages for group in page.item.groups]
    versions = ["versions"] if any(one.item.versions for one in found) else []
    columns = ERROR.shown(
        "count", "retries", "dead", "first", "last", *versions, "classes", "queues", "error"
    )
    Records(columns, _NONE).print(targets, found, as_json, Form(time.time(), times))
    for page in pages:
        if page.item.cursor:
            looked = f"{page.item.looked_at:,} of {page.item.total:,} jobs"
            where = f" in {page.redis}" if targets.several else ""
            click.echo(f"read {looked}{where}: --limit 0 reads all", err=True)
