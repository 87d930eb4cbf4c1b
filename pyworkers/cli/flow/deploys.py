"""``pyworkers deploys``: lists and marks deployments.

Run by people and by deployment scripts.
"""

from __future__ import annotations

from pyworkers.api.deploys import ACTIONS, DEPLOY, DeploySet
from pyworkers.cli.actions import commands
from pyworkers.cli.options import listing_group
from pyworkers.cli.output.listing import Records

_HELP = """Show the marked deployments; mark one.

They are lines in the charts of the dashboard. Sidekiq's Web UI shows the same marks.

\b
Examples: pyworkers deploys
          pyworkers deploys mark v1.4.2
"""
_LIST = Records(DEPLOY.shown(), "No deployment is marked.", DEPLOY.as_dict).command(
    "list",
    DeploySet,
    """Show the last hundred marked deployments of 90 days, the latest first.

    \b
    Example: pyworkers deploys list --json
    """,
)
deploys = listing_group("deploys", _HELP, {"list": _LIST, **commands(ACTIONS)})
