"""The command line: the group of all commands, and how their errors look.

Run by people and scripts. The module of a command is imported when the command is used, never before:
``pyworkers --help`` loads neither redis nor structlog nor the configuration.
"""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from pyworkers.errors import AppImportError, PyworkersError
from pyworkers.version import __version__

# Of each command: the module of pyworkers.cli that has it under its own name, and its sentence.
_COMMANDS = {
    "run": ("run", "Execute jobs until told to stop."),
    "enqueue": ("enqueue", "Put a job of CLASS into QUEUE and print its id (jid)."),
    "stats": ("stats", "Show how many jobs there are in each state."),
    "top": ("top", "Watch queues, servers and running jobs; q quits."),
    "queues": ("queues", "Show the queues: size, latency, jobs in progress."),
    "jobs": ("jobsets", "Show the jobs that wait in QUEUE, and kill or delete them."),
    "scheduled": ("jobsets", "Show the jobs for later, run them now, kill or delete them."),
    "retries": ("jobsets", "Show the failed jobs that wait, retry, kill or delete them."),
    "dead": ("jobsets", "Show the dead jobs, retry or delete them."),
    "cron": ("cron", "Show the cron entries; add, pause, resume, remove, trigger them."),
    "pause": ("queues", "Let servers take no more jobs from QUEUE."),
    "resume": ("queues", "Let servers take jobs from a paused QUEUE again."),
    "processes": ("processes", "Show the servers: what they serve, how busy they are."),
    "workers": ("processes", "Show the jobs that run, the longest first."),
    "quiet": ("servers", "Tell servers to take no more jobs."),
    "stop": ("servers", "Tell servers to stop."),
    "cancel": ("cancel", "Let a job not run, or end it if it runs."),
    "check": ("check", "Say what is unsafe about Redis and the application."),
    "acl": ("acl", "Print the least rights that a role needs on Redis."),
    "config": ("config", "Check the configuration, or show what is in effect."),
    "version": ("version", "Show the versions of pyworkers and of what it stands on."),
}
# 128 + SIGINT, as shells report a program that Ctrl-C ended.
_INTERRUPTED = 130


class _LazyGroup(click.Group):
    """A group whose commands are stand-ins that only know their sentence, until one of them is used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The real command; None if there is none of this name."""
        if cmd_name not in self.commands:
            return None
        module, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), cmd_name)
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table, which is that of use."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table; click's own method would import every command for its sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.short_help or "") for name, command in self.commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What is expected to go wrong ends in a sentence on stderr, not in a traceback."""
        # Names and arguments may hold what the terminal's encoding has no character for.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except PyworkersError as error:
            click.echo(_presented(error), err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _presented(error: PyworkersError) -> str:
    traceback = error.traceback.rstrip() if isinstance(error, AppImportError) else ""
    return "\n".join(filter(None, (traceback, f"Error: {error}")))


@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name, short_help=sentence) for name, (_, sentence) in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="pyworkers")
def main() -> None:
    """A worker server for Python that speaks Sidekiq's Redis protocol.

    \b
    Examples: pyworkers run --config conf/workers.toml
              pyworkers enqueue mail SendMail '[7, "hello"]' --in 10s
    """
