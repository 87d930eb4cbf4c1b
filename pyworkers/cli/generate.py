"""``pyworkers generate``: writes the jobs of an application, with their types, for other languages.

Run by people and by CI. It imports the application in its own process, and never connects to Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.stubs import golang, ruby, schema, typescript
from pyworkers.cli.text import printable
from pyworkers.errors import ConfigError
from pyworkers.server import rehearse


class _Language(NamedTuple):
    file: str
    written: Callable[[str, Mapping[str, Any]], str]


_LANGUAGES = {
    "schema": _Language("jobs.schema.json", schema.written),
    "go": _Language("jobs.go", golang.written),
    "ruby": _Language("jobs.rb", ruby.written),
    "ts": _Language("jobs.ts", typescript.written),
}


@click.command()
@click.argument("language", type=click.Choice(list(_LANGUAGES)))
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker, e.g. tasks:worker.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write, - for stdout.  [default: "
    + ", ".join(f"{one.file} ({name})" for name, one in _LANGUAGES.items())
    + "]",
)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the file is not up to date.")
@json_option
@config_options
def generate(
    source: ConfigOptions, /, language: str, app: str | None, output: str | None, check: bool, as_json: bool
) -> None:
    """Write the jobs of an application for another language.

    LANGUAGE is schema (a JSON Schema of the arguments and the result of each job), go (the package jobs, for
    the module of contrib/clients/go), ruby (the module Jobs, for the gem pyworkers) or ts (TypeScript, for
    the package pyworkers of Node). The types come from the functions' annotations; a parameter without one
    takes any value. The same jobs give the same file: use --check in CI to find out when it must be written
    again. Needs the extra types.

    \b
    Example: pyworkers generate ts --app tasks:worker --output web/jobs.ts

    Exit codes: 1 the file is not up to date, 2 configuration, 3 application import.
    """
    config = source.load({"app": app})
    if config.app is None:
        raise ConfigError("no application", hint="use --app MODULE:NAME, or set app in the configuration")
    found = rehearse(config, describe=True).jobs
    text = _LANGUAGES[language].written(config.app, found)
    if output == "-":
        click.echo(text, nl=False)
        return
    file = Path(output or _LANGUAGES[language].file)
    stale = _is_stale(file, text)
    if stale and not check:
        _write(file, text)
    if as_json:
        print_action("generate", int(stale and not check), file=str(file), stale=stale)
    elif stale and check:
        words = f"pyworkers generate {language} --app {config.app} --output {file}"
        click.echo(f"{printable(str(file))} is not up to date: run {printable(words)}", err=True)
    else:
        click.echo(f"{printable(str(file))}: {'written' if stale else 'up to date'}")
    if stale and check:
        click.get_current_context().exit(1)


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", location=str(file)) from error


def _is_stale(file: Path, text: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", location=str(file)) from error
