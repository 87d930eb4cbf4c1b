"""``pyworkers deploys``: lists and marks deployments.

Run by people and by deployment scripts.
"""

from __future__ import annotations

import click

from pyworkers.api.deploys import ACTIONS, DEPLOY, DeploySet
from pyworkers.cli.actions import commands
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option

_HELP = """Show the marked deployments; mark one.

They are lines in the charts of the dashboard. Sidekiq's Web UI shows the same marks.

\b
Examples: pyworkers deploys
          pyworkers deploys mark v1.4.2
"""
_DEPLOYS = Records(DEPLOY.shown(), "No deployment is marked.", DEPLOY.as_dict)


@click.command("list")
@json_option
@utc_option
@redis_options
def list_(source: ConfigOptions, as_json: bool, times: Times) -> None:
    """Show the last hundred marked deployments of 90 days, the latest first.

    \b
    Example: pyworkers deploys list --json
    """
    _DEPLOYS.print_of(source.targets(), DeploySet, as_json, times)


deploys = listing_group("deploys", _HELP, {"list": list_, **commands(ACTIONS)})
