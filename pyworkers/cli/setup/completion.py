"""``pyworkers completion``: prints the script with which a shell completes the words of this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pyworkers.cli.output.records import json_option, print_json

_PROGRAM = "pyworkers"
# The variable in which the script asks this program for words; click derives the same name.
_VARIABLE = "_PYWORKERS_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    \b
    bash:  eval "$(pyworkers completion bash)"                             in ~/.bashrc
    zsh:   eval "$(pyworkers completion zsh)"                              in ~/.zshrc
    fish:  pyworkers completion fish > ~/.config/fish/completions/pyworkers.fish
    """
    make = get_completion_class(shell)
    if make is None:
        raise click.BadParameter(f"{shell} is not a shell that click knows")
    root = click.get_current_context().find_root().command
    script = make(root, {}, _PROGRAM, _VARIABLE).source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
