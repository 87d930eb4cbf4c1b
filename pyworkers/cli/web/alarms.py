"""``pyworkers alarms``: watches, and sends the alarms of the configuration. Run by service managers."""

from __future__ import annotations

import click

from pyworkers.alarms.watching import Watcher
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.text import printable


@click.command()
@click.option("--once", is_flag=True, help="Check once, send the messages that are due, and exit.")
@click.option("--test", metavar="NAME", help="Send a test to the targets of this alarm, and exit.")
@json_option
@config_options
def alarms(source: ConfigOptions, once: bool, test: str | None, as_json: bool) -> None:
    """Watch, and send the alarms of the configuration.

    Each table [[alarm]] of the configuration says what is watched (queues, dead jobs, servers, cron entries,
    limits), and where messages are sent (a webhook, Slack, mail). Each message is sent at least once; the
    messages of one alarm have one id, and the last one says that it is over. Several processes may run: one
    watches, and another one takes over when it ends. `pyworkers web --alarms` does the same.

    Exit codes: 0 stopped by TERM or INT, 1 a target has refused a test, 2 configuration, 4 Redis is
    unreachable (--once).

    \b
    Example: pyworkers alarms --config workers.toml
    """
    config = source.load({"log.format": "json"} if as_json and not test else {})
    watcher = Watcher(config)
    if test is not None:
        _print_test(watcher.test(test), as_json)
    elif once:
        watcher.look()
    else:
        watcher.run_until_signal()


def _print_test(results: dict[str, str | None], as_json: bool) -> None:
    if as_json:
        print_list({"to": to, "sent": error is None, "error": error} for to, error in results.items())
    else:
        for to, error in results.items():
            click.echo(f"{to}: {'sent' if error is None else printable(error)}")
    if any(error is not None for error in results.values()):
        raise SystemExit(1)
