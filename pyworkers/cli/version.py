"""``pyworkers version``: the versions that a bug report needs.

Run by people. Imports none of the packages that it lists.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from pyworkers.cli.output.records import json_option, print_json
from pyworkers.version import __version__


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the versions of pyworkers and its dependencies.

    \b
    Example: pyworkers version --json
    """
    versions = {
        "pyworkers": __version__,
        "Python": platform.python_version(),
        "redis-py": _installed("redis"),
        "hiredis": _installed("hiredis"),
    }
    if as_json:
        print_json(versions)
        return
    width = max(map(len, versions))
    for name, number in versions.items():
        click.echo(f"{name:<{width}}  {number}")


def _installed(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"
