"""Options of other libraries' programs: each is an error that names ours.

Used when a command line is parsed. It decides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

_SIZES = "use --queue NAME=CONCURRENCY, or concurrency in the configuration"
_BELONGS_AFTER = "it belongs after the command, as in {0} stats {1}"

# Celery, RQ, Dramatiq, arq, Huey and Sidekiq name these for the program that runs jobs.
OF_RUN = {
    **dict.fromkeys(("-A", "-r", "--require"), "use --app MODULE:NAME"),
    **dict.fromkeys(("-Q", "--queues"), "use --queue NAME, once for each queue"),
    **dict.fromkeys(("--concurrency", "--max-jobs", "--workers", "-w"), _SIZES),
    **dict.fromkeys(("-p", "--processes"), "use processes of a queue or group in the configuration"),
    **dict.fromkeys(
        ("-P", "--pool", "--threads", "--worker-type"),
        "use mode of a queue or group in the configuration: process, async or thread",
    ),
    **dict.fromkeys(("-l", "--loglevel", "--logging-level"), "use --log-level LEVEL"),
    **dict.fromkeys(("-v", "--verbose"), "use --log-level debug"),
    **dict.fromkeys(("-b", "-u", "--broker", "--redis", "--redis-url"), "use --url URL"),
    **dict.fromkeys(("-B", "--beat", "--with-scheduler"), "each server fires the cron entries"),
    "-C": "use --config FILE",
    "--watch": "use --reload",
    "--burst": "use --drain",
}
"""Each option, with the hint to ours."""
OF_ALL = {
    **dict.fromkeys(("-A", "-a", "--app"), "use {0} run --app MODULE:NAME"),
    **dict.fromkeys(("-c", "--config", "--url", "--namespace"), _BELONGS_AFTER),
}
"""The same for those before the name of a command; ``{0}`` is the program, ``{1}`` the option."""


def parsed(
    parse: Callable[[click.Context, list[str]], list[str]],
    ctx: click.Context,
    args: list[str],
    hints: Mapping[str, str],
) -> list[str]:
    """What ``parse`` returns. Raises UsageError with the hint for an unknown option."""
    try:
        return parse(ctx, args)
    except click.NoSuchOption as error:
        name = error.option_name
        # In a Django project, no command has --config.
        if (hint := hints.get(name)) and not (ctx.obj is not None and name in ("-c", "--config")):
            ctx.fail(f"No such option {name!r}: {hint.format(ctx.command_path, name)}")
        raise


class RunCommand(click.Command):
    """``pyworkers run``: its options are named otherwise in other libraries, and it takes no arguments."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in a command. Raises UsageError for arguments, with the option that they may mean."""
        extra = parsed(super().parse_args, ctx, args, OF_RUN)
        if extra and not ctx.resilient_parsing:
            hint = "use --app MODULE:NAME for the application, --queue NAME for a queue"
            if ":" in extra[0]:
                hint = f"use --app {extra[0]}"
            ctx.fail(f"Got unexpected extra argument {extra[0]!r}: {hint}")
        return extra
