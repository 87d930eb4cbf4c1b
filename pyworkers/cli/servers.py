"""What ``pyworkers quiet`` and ``stop`` share: which servers are meant, and the question before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click

from pyworkers.api import Process, ProcessSet
from pyworkers.cli.bulk import ask, check_terminal
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable
from pyworkers.errors import PyworkersError

_WORDS = {"quiet": "be quiet", "stop": "stop"}


def steering_command(name: str, text: str, question: str, order: Callable[[Process], None]) -> click.Command:
    """A command that gives ``order`` to servers."""

    @click.argument("identities", metavar="[IDENTITY]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All servers.")
    @click.option("--dry-run", is_flag=True, help="Only say which servers it would be.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
    @config_options
    def steer(
        source: Source, identities: tuple[str, ...], every: bool, dry_run: bool, yes: bool, as_json: bool
    ) -> None:
        if every == bool(identities):
            raise click.UsageError("Name servers, or say --all; `pyworkers processes` shows them.")
        found = sorted(ProcessSet(source.redis()), key=lambda process: process.identity)
        chosen = [process for process in found if not process.about.embedded] if every else []
        chosen += [_named(identity, found) for identity in identities]
        if every and chosen and not (yes or dry_run):
            check_terminal()
            ask(f"{question} {len(chosen)} servers?")
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
    """The server of that name, or the only one of that host or host:pid. Raises PyworkersError."""
    begun = [process for process in found if f"{process.identity}:".startswith(f"{word}:")]
    if len(begun) == 1:
        return begun[0]
    if not begun:
        raise PyworkersError(f"no such server: {printable(word)}", hint="`pyworkers processes` shows them.")
    names = "\n".join(printable(process.identity) for process in begun)
    raise PyworkersError(f"{printable(word)} may mean {len(begun)} servers:\n{names}")


def _tell(name: str, names: Sequence[str], dry_run: bool) -> None:
    if not names:
        click.echo("no servers")
    for identity in names:
        words = f"would tell {printable(identity)} to {_WORDS[name]}" if dry_run else _told(name, identity)
        click.echo(words)


def _told(name: str, identity: str) -> str:
    return f"told {printable(identity)} to {_WORDS[name]}; it obeys within 10 seconds"


quiet = steering_command(
    "quiet",
    """Tell servers to take no more jobs.

    What they run goes on; only a restart ends the quiet. IDENTITY is that of `pyworkers processes`, or a
    host, or host:pid. Asks first with --all.

    \b
    Example: pyworkers quiet web-1:4711
    """,
    "Quiet",
    Process.quiet,
)

stop = steering_command(
    "stop",
    """Tell servers to stop.

    They finish what they run within their shutdown timeout, and put the rest back. IDENTITY is that of
    `pyworkers processes`, or a host, or host:pid. Asks first with --all.

    \b
    Example: pyworkers stop web-1:4711
    """,
    "Stop",
    Process.stop,
)
