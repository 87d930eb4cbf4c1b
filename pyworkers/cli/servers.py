"""``pyworkers quiet``, ``stop`` and ``reload``: signal servers. Run by people and by deployments."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyworkers.api import Process, ProcessSet, Signal
from pyworkers.cli.bulk import ask, check_terminal
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.output.auditing import note
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.text import printable
from pyworkers.errors import PyworkersError


def steering_command(word: Signal, text: str) -> click.Command:
    """A command that sends ``word`` to the chosen servers; to all of them, but those that refuse it."""
    name = word.name.lower()

    @click.argument("identities", metavar="[IDENTITY]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All servers.")
    @click.option("--dry-run", is_flag=True, help="Print the servers; change nothing.")
    @click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
    @json_option
    @config_options
    def steer(
        source: Source, identities: tuple[str, ...], every: bool, dry_run: bool, yes: bool, as_json: bool
    ) -> None:
        if every == bool(identities):
            raise click.UsageError("Name servers, or pass --all; `pyworkers processes` shows them.")
        accepting, refusing = ProcessSet(source.redis()).accepting(word)
        named = [_named(identity, [*accepting, *refusing]) for identity in identities]
        for reason in filter(None, (process.refusal(word) for process in named)):
            raise PyworkersError(reason)
        chosen = accepting if every else named
        if every and chosen and not (yes or dry_run):
            check_terminal()
            servers = "1 server" if len(chosen) == 1 else f"{len(chosen)} servers"
            ask(f"{name.capitalize()} {servers}?")
        for process in () if dry_run else chosen:
            process.send(word)
            note(source.redis(), f"server.{name}", process.identity, "done")
        names = [process.identity for process in chosen]
        if as_json:
            print_action(name, 0 if dry_run else len(names), identities=names, dry_run=dry_run)
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
    names = "\n".join(sorted(printable(process.identity) for process in begun))
    raise PyworkersError(f"{printable(word)} is ambiguous, name one of {len(begun)} servers:\n{names}")


def _tell(name: str, names: Sequence[str], dry_run: bool) -> None:
    if not names:
        click.echo("no servers")
    for identity in names:
        sent = f"sent {name} to {printable(identity)}; it takes effect within 10 seconds"
        click.echo(f"would send {name} to {printable(identity)}" if dry_run else sent)


quiet = steering_command(
    Signal.QUIET,
    """Make servers take no more jobs.

    Running jobs continue; to take jobs again, a server must be restarted. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers quiet web-1:4711
    """,
)

stop = steering_command(
    Signal.STOP,
    """Stop servers: finish running jobs, then exit.

    Jobs that still run after the shutdown timeout go back to their queues. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers stop web-1:4711
    """,
)

reload = steering_command(
    Signal.RELOAD,
    """Have servers load their code and configuration again.

    As HUP does: running jobs finish in the old code; after an error, the old code and configuration continue.
    Only servers of pyworkers reload: --all leaves other programs' servers out. IDENTITY is one of `pyworkers
    processes`, a host, or host:pid. --all asks for confirmation.

    \b
    Example: pyworkers reload web-1:4711
    """,
)
