"""The reference of the command line, from click's own tables.

Imports the modules of the commands and runs none of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from contrib.reference.tables import code, plain, table
from pyworkers.cli import main


def page(group: click.Group = main) -> str:
    """The page: each command with its arguments and options."""
    head = "# Command line\n\nEach command explains itself: `pyworkers COMMAND --help`.\n"
    return head + "".join(_section(command, name) for name, command in walk(group))


def walk(group: click.Group, path: str = "pyworkers") -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, with the words that call it, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from walk(command, f"{path} {name}")


def _section(command: click.Command, path: str) -> str:
    # With the settings of the program: click keeps the help option that it makes here.
    context = click.Context(command, info_name=path, **main.context_settings)
    usage = " ".join(command.collect_usage_pieces(context))
    level = "##" if path.count(" ") == 1 else "###"
    rows = [row for row in map(_row, command.get_params(context)) if row]
    options = "\n" + table(("option", "meaning"), rows) if rows else ""
    return f"\n{level} {path}\n\n```text\n{path} {usage}\n```\n\n{_prose(command)}\n{options}"


def _row(param: click.Parameter) -> tuple[str, str] | None:
    if not isinstance(param, click.Option) or param.hidden or "--help" in param.opts:
        return None
    names = ", ".join(map(code, [*param.opts, *param.secondary_opts]))
    value = "" if param.is_flag or param.count else f" {code(param.make_metavar(click.Context(main)))}"
    return names + value, plain(param.help or "")


def _prose(command: click.Command) -> str:
    """The help as Markdown: a paragraph that click must not wrap is an example."""
    paragraphs = inspect.cleandoc(command.help or command.short_help or "").split("\n\n")
    return "\n\n".join(
        f"```text\n{text.removeprefix(chr(8)).strip(chr(10))}\n```" if text.startswith("\b") else plain(text)
        for text in paragraphs
    )
