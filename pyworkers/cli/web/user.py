"""``pyworkers web-user``: prints a line for the file of the dashboard's users. Run by people and scripts."""

from __future__ import annotations

import sys

import click

from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.web import need_extra
from pyworkers.config.rights import Rights


def _parse_name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    need_extra()
    from pyworkers.web.security.users import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(f"{name!r}: {error}") from error
    return name


def _parse_role(_context: click.Context, _option: click.Parameter, role: str) -> str:
    try:
        Rights.parse(role)
    except ValueError as error:
        raise click.BadParameter(f"{role!r}: {error}") from error
    return role


@click.command("web-user")
@click.argument("name", metavar="NAME", callback=_parse_name)
@click.argument("role", metavar="ROLE", callback=_parse_role)
@json_option
def web_user(name: str, role: str, as_json: bool) -> None:
    """Print the line of a user for the dashboard's --auth file.

    The ROLE is read (see all pages), enqueue (a program that enqueues jobs, and reads their results), or
    operate (see and change everything). With @ and names of queues, in which * is any text, it can change
    only those: enqueue@mail, operate@mail*,billing. The password is the first line of the standard input; a
    terminal asks for it twice.

    \b
    Example: pyworkers web-user ann operate >> users
    """
    from pyworkers.web.security.passwords import PasswordHash
    from pyworkers.web.security.users import User

    password = _read_password()
    if not password:
        raise click.UsageError("the password is empty")
    line = str(User(name, Rights.parse(role), PasswordHash.of(password)))
    if as_json:
        print_json({"user": name, "role": role, "line": line})
    else:
        click.echo(line)


def _read_password() -> str:
    if sys.stdin.isatty():
        text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return text
    return sys.stdin.readline().rstrip("\r\n")
