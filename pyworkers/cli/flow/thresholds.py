"""``pyworkers thresholds``: shows the thresholds of the dashboard, and sets and removes some of them.

Run by people and scripts. It shows thresholds of the configuration, too, and never changes them.
"""

from __future__ import annotations

import time

import click

from pyworkers.api.thresholds import ACTIONS, THRESHOLD, ThresholdSet, listed
from pyworkers.cli.actions import commands
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.config.thresholds import Threshold

_HELP = """Show the thresholds of the dashboard; set or remove one.

A count above its threshold is red in the dashboard, and among its problems.

\b
Examples: pyworkers thresholds
          pyworkers thresholds set 'mail* oldest > 300'
"""


@click.command("list")
@json_option
@redis_options
def list_(source: ConfigOptions, as_json: bool) -> None:
    """Show the thresholds of the configuration, and the ones that people have set.

    \b
    Example: pyworkers thresholds list --json
    """
    declared = list(map(Threshold.parse, source.load().web.thresholds))
    found = listed(declared, list(ThresholdSet(source.default_only().redis())))
    if as_json:
        print_list(map(THRESHOLD.as_dict, found))
    elif found:
        Form(time.time()).show(THRESHOLD.shown("threshold", "set_in"), found)
    else:
        click.echo("There are no thresholds.")


thresholds = listing_group("thresholds", _HELP, {"list": list_, **commands(ACTIONS)})
