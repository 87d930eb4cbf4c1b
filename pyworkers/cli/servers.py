"""``pyworkers quiet``, ``stop`` and ``reload``: signal servers. Run by people and by deployments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from pyworkers.api import Process, ProcessSet, ServerView, Signal
from pyworkers.api.actions import Action
from pyworkers.api.processes import ACTIONS
from pyworkers.cli.actions import perform, show
from pyworkers.cli.bulk import ask, check_terminal, yes_option
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.text import printable
from pyworkers.errors import PyworkersError
from pyworkers.text import counted


def steering_command(action: Action[ServerView]) -> click.Command:
    """A command that signals the chosen servers; all of them, but those that refuse it."""
    name = action.word
    word = Signal[name.upper()]

    @click.argument("identities", metavar="[IDENTITY]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All servers.")
    @click.option("--dry-run", is_flag=True, help="Print the servers; change nothing.")
    @yes_option
    @json_option
    @redis_options
    def steer(
        source: ConfigOptions,
        identities: tuple[str, ...],
        every: bool,
        dry_run: bool,
        yes: bool,
        as_json: bool,
    ) -> None:
        if every == bool(identities):
            raise click.UsageError("Name servers, or pass --all; `pyworkers processes` shows them.")
        targets = source.targets()
        found = [ProcessSet(target.config).accepting(word) for target in targets]
        accepting = _once(process for some, _ in found for process in some)
        refusing = _once(process for _, some in found for process in some)
        named = [_named(identity, [*accepting, *refusing]) for identity in identities]
        for reason in filter(None, (process.refusal(word) for process in named)):
            raise PyworkersError(reason)
        chosen = accepting if every else named
        if every and chosen and not (yes or dry_run):
            check_terminal()
            ask(f"{name.capitalize()} {counted(len(chosen), 'server')}?")
        names = [process.identity for process in chosen]
        if dry_run or not names:
            _tell(name, names, as_json, dry_run)
            return
        outcomes = [perform(targets, action, {"identity": identity}) for identity in names]
        show(outcomes, as_json, dry_run=False)

    return click.command(name, help=action.command)(steer)


def _once(found: Iterable[Process]) -> list[Process]:
    """The servers, each once: one that has queues on several Redis servers is known to all of them."""
    return list({process.identity: process for process in found}.values())


def _named(word: str, found: Sequence[Process]) -> Process:
    """The server with that identity, or the only one on that host or host:pid. Raises PyworkersError."""
    begun = [process for process in found if f"{process.identity}:".startswith(f"{word}:")]
    if len(begun) == 1:
        return begun[0]
    if not begun:
        raise PyworkersError(f"no such server: {printable(word)}", hint="`pyworkers processes` shows them.")
    names = "\n".join(sorted(printable(process.identity) for process in begun))
    raise PyworkersError(f"{printable(word)} is ambiguous, name one of {len(begun)} servers:\n{names}")


def _tell(name: str, names: Sequence[str], as_json: bool, dry_run: bool) -> None:
    """Print to which servers the signal would be sent."""
    if as_json:
        print_action(name, 0, identities=names, dry_run=dry_run)
        return
    for identity in names:
        click.echo(f"would send {name} to {printable(identity)}")
    if not names:
        click.echo("no servers")


quiet, stop, reload = map(steering_command, ACTIONS)
