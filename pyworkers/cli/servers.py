"""``pyworkers quiet`` and ``stop``: send a signal to servers. Run by people and by deployments."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click

from pyworkers.api import Process, ProcessSet
from pyworkers.cli.bulk import ask, check_terminal
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable
from pyworkers.errors import PyworkersError


def steering_command(name: str, text: str, order: Callable[[Process], None]) -> click.Command:
    """A command that sends ``order`` to the chosen servers."""

    @click.argument("identities", metavar="[IDENTITY]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All servers.")
    @click.option("--dry-run", is_flag=True, help="Print the servers; change nothing.")
    @click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
    @config_options
    def steer(
        source: Source, identities: tuple[str, ...], every: bool, dry_run: bool, yes: bool, as_json: bool
    ) -> None:
        if every == bool(identities):
            raise click.UsageError("Name servers, or pass --all; `pyworkers processes` shows them.")
        found = sorted(ProcessSet(source.redis()), key=lambda process: process.identity)
        chosen = [process for process in found if not process.about.embedded] if every else []
        chosen += [_named(identity, found) for identity in identities]
        if every and chosen and not (yes or dry_run):
            check_terminal()
            servers = "1 server" if len(chosen) == 1 else f"{len(chosen)} servers"
            ask(f"{name.capitalize()} {servers}?")
        if not dry_run:
            for process in chosen:
                order(process)
        names = [process.identity for process in chosen]
        if as_json:
            click.echo(json.dumps({"action": name, "identities": names, "dry_run": dry_run}))
        else:
            _tell(name, names, dry_run)

    return click.command(name, help=text)(steer)


def _named(word: str, found: Sequence[Process]) -> Process:
    """The server with that identity, or the only one on that host or host:pid. Raises PyworkersError."""
    begun = [process for process in found if f"{process.identity}:".startswith(f"{word}:")]
    if len(begun) == 1:
        return begun[0]
    if not begun:
        raise PyworkersError(f"no such server: {printable(word)}", hint="`pyworkers processes` shows them.")
    names = "\n".join(printable(process.identity) for process in begun)
    raise PyworkersError(f"{printable(word)} is ambiguous, name one of {len(begun)} servers:\n{names}")


def _tell(name: str, names: Sequence[str], dry_run: bool) -> None:
    if not names:
        click.echo("no servers")
    for identity in names:
        sent = f"sent {name} to {printable(identity)}; it takes effect within 10 seconds"
        click.echo(f"would send {name} to {printable(identity)}" if dry_run else sent)


quiet = steering_command(
    "quiet",
    """Make servers take no more jobs.

    Running jobs continue; to take jobs again, a server must be restarted. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers quiet web-1:4711
    """,
    Process.quiet,
)

stop = steering_command(
    "stop",
    """Stop servers: finish running jobs, then exit.

    Jobs that still run after the shutdown timeout go back to their queues. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers stop web-1:4711
    """,
    Process.stop,
)
