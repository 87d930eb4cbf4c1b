"""The commands of actions, made from their declarations (``api/actions.py``).

Run by people and scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from pyworkers.api.actions import AbsentError, Action, Given, Performed
from pyworkers.api.target import admin_of
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.auditing import note
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.targets import Targets
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig


def commands(actions: Iterable[Action[Any]]) -> dict[str, click.Command]:
    """The commands of those actions that have one, by name."""
    return {action.word: command(action) for action in actions if action.command}


def command(action: Action[Any]) -> click.Command:
    """The command of an action, which takes its required fields as arguments."""

    @json_option
    @redis_options
    def change(source: ConfigOptions, /, as_json: bool, **given: Any) -> None:
        show(
            [perform(_targets(source, action, each), action, each) for each in _each(action, given)], as_json
        )

    made = click.command(action.word, help=action.command)(change)
    made.params[:0] = _arguments(action)
    return made


def _arguments(action: Action[Any]) -> list[click.Parameter]:
    required = [field for field in action.fields if field.required]
    names = [(field.name, field.argument or field.name) for field in required]
    if action.several:
        [(name, argument)] = names
        return [click.Argument([name], metavar=f"{argument.upper()}...", nargs=-1, required=True)]
    return [click.Argument([name], metavar=argument.upper()) for name, argument in names]


def _each(action: Action[Any], given: Given) -> list[Given]:
    """What was given, for each thing that the command names."""
    if not action.several:
        return [given]
    [(name, values)] = given.items()
    return [{name: value} for value in values]


def _targets(source: ConfigOptions, action: Action[Any], given: Given) -> Targets:
    """The Redis of the queue, or the one with the thresholds for all; for any other subject, all."""
    subject = action.name.partition(".")[0]
    if subject == "queue":
        return source.target_of(given[action.fields[0].name])
    if subject == "threshold":
        source = source.default_only()
    return source.targets()


def perform(targets: Targets, action: Action[Any], given: Given) -> Performed:
    """Do it in the first Redis that has its subject, and add its line to the audit there.

    Raises PyworkersError: also if none has it, and one is away.
    """
    unchanged: list[tuple[RedisConfig, Performed]] = []
    absent: list[AbsentError] = []

    def act(redis: RedisConfig) -> Performed | None:
        try:
            outcome = action.perform(admin_of(redis), given)
        except AbsentError as error:
            absent.append(error)
            return None
        if outcome.nothing:
            unchanged.append((redis, outcome))
            return None
        return outcome

    found = targets.first(act)
    if found is None and not unchanged:
        raise absent[0]
    redis, outcome = unchanged[0] if found is None else (found[0].config, found[1])
    note(redis, action.name, action.target_of(given), str(outcome))
    return outcome


def show(outcomes: Sequence[Performed], as_json: bool, **facts: Any) -> None:
    """Print what became of an action; exits with 1 if something was not there. ``facts``: more JSON."""
    action = outcomes[0].action
    if as_json:
        number = sum(outcome.number for outcome in outcomes)
        print_action(action.word, number, **{**_facts(outcomes), **facts})
    for outcome in () if as_json else outcomes:
        alone = action.returns and not outcome.nothing
        text = printable(str(outcome.result)) if alone else outcome.words(printable)
        click.echo(text, err=outcome.failed)
    if any(outcome.failed for outcome in outcomes):
        click.get_current_context().exit(1)


def _facts(outcomes: Sequence[Performed]) -> dict[str, Any]:
    action = outcomes[0].action
    if action.several:
        name = action.fields[0].name
        return {action.several: [outcome.given[name] for outcome in outcomes if not outcome.nothing]}
    words = {field.name: field.argument or field.name for field in action.fields}
    facts = {words[name]: value for name, value in outcomes[0].given.items()}
    return facts | ({action.returns: outcomes[0].result} if action.returns else {})
