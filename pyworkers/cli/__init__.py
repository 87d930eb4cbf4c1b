"""The command line: the group of all commands, and how errors are printed.

Run by people and scripts. The module of a command is imported when that command is used, never before:
``pyworkers --help`` loads neither redis nor structlog nor the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from pyworkers import streams
from pyworkers.cli.setup.foreign import OF_ALL, parsed
from pyworkers.errors import AppImportError, PyworkersError, RedisUnavailableError
from pyworkers.text import printable_lines
from pyworkers.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pyworkers.cli.options import Project

# Command: the module of pyworkers.cli that defines it under this name, and the line in the help.
_COMMANDS = {
    "init": ("setup.init", "Write tasks.py and workers.toml into FOLDER, for a first start."),
    "run": ("run", "Run the server: execute jobs until a signal stops it."),
    "enqueue": ("enqueue", "Enqueue a job of CLASS into QUEUE and print its id (jid)."),
    "metrics": ("stats", "Show runs, failures and durations of each class."),
    "stats": ("stats", "Show the number of jobs in each state, queue and group."),
    "top": ("top", "Watch queues, servers and running jobs; q quits."),
    "queues": ("queues", "Show all queues: size, latency, rate, jobs in progress."),
    "jobs": ("jobsets", "Show the jobs waiting in QUEUE; edit, kill or delete them."),
    "scheduled": ("jobsets", "Show scheduled jobs; run them now, edit, kill or delete them."),
    "retries": ("jobsets", "Show jobs waiting for a retry; retry, edit, kill or delete them."),
    "dead": ("jobsets", "Show dead jobs; retry, edit or delete them."),
    "errors": ("flow.errors", "Show the errors of retries and dead jobs, the most frequent first."),
    "finished": ("flow.finished", "Show the last jobs that have ended; enqueue one again."),
    "batches": ("flow.batches", "Show batches, chains and groups; delete them."),
    "locks": ("flow.locks", "Show the locks of unique jobs; release them."),
    "limits": ("flow.limits", "Show the limits over all servers, with their use; reset them."),
    "cron": ("cron", "Show cron entries; add, pause, resume, remove or trigger them."),
    "pause": ("pausing", "Stop all servers from taking jobs from QUEUE."),
    "resume": ("pausing", "Let servers take jobs from a paused QUEUE again."),
    "move": ("move", "Move the jobs of QUEUE to another Redis."),
    "processes": ("processes", "Show all servers: their queues and running jobs."),
    "workers": ("processes", "Show running jobs, the longest first."),
    "quiet": ("servers", "Make servers take no more jobs."),
    "stop": ("servers", "Stop servers: finish running jobs, then exit."),
    "reload": ("servers", "Make servers reload their code and configuration."),
    "cancel": ("cancel", "Cancel jobs by their id, batch, tag or class."),
    "status": ("flow.tracking", "Show the state and the progress of a job."),
    "result": ("flow.tracking", "Print the result of a job as JSON; wait for its end."),
    "logs": ("flow.joblog", "Show the log of a job."),
    "stack": ("flow.stack", "Show the stack of a running job, and the memory of its process."),
    "adopt": ("adopt", "Return the jobs of a dead foreign process to their queues."),
    "deploys": ("flow.deploys", "Show the marked deployments; mark one."),
    "thresholds": ("flow.thresholds", "Show the thresholds of the dashboard; set or remove one."),
    "audit": ("flow.audit", "Show the actions of people, in the dashboard or by a command."),
    "undo": ("flow.audit", "Put deleted jobs back, within ten minutes."),
    "check": ("check", "Check Redis and the application for unsafe settings."),
    "alarms": ("web.alarms", "Watch, and send the alarms of the configuration."),
    "generate": ("generate", "Write the jobs of an application for another language."),
    "web": ("web.serve", "Serve the dashboard until a signal stops it."),
    "web-user": ("web.user", "Print the line of a user for the dashboard's --auth file."),
    "acl": ("acl", "Print the minimal Redis ACL of a role."),
    "config": ("config", "Check the configuration, or show the values in effect."),
    "completion": ("setup.completion", "Print the completion script of SHELL: bash, zsh or fish."),
    "version": ("version", "Show the versions of pyworkers and its dependencies."),
}
# The commands of other libraries, with ours; a name of ours that is near has another meaning.
_ELSEWHERE = {
    **dict.fromkeys(("beat", "start", "work", "worker"), "run"),
    **dict.fromkeys(("dashboard", "flower", "ui"), "web"),
    **dict.fromkeys(("flush", "purge"), "jobs QUEUE clear"),
    "failed": "dead",
    "help": "--help",
    "info": "stats",
    "inspect": "processes",
    "list": "queues",
    "monitor": "top",
}
# Nothing answers at the address, or it has no such name (store/transport/errors.py).
NOT_THERE = {"UNREACHABLE", "DNS"}
_OTHER_ADDRESS = (
    "Start Redis, or name another address: --url, REDIS_URL, or redis.url of the configuration; "
    "`pyworkers config show` prints the one in effect."
)
# In a help text: `Example: pyworkers stats --json`, or a further line of `Examples:`.
_EXAMPLE = re.compile(r"^( *Examples?: | {6,})pyworkers( .*)$", re.MULTILINE)
_FILES = re.compile(r" --(config|app) \S+")
# 128 + SIGINT, as shells report a program that Ctrl-C ended.
_INTERRUPTED = 130


class _LazyGroup(click.Group):
    """A group whose commands are placeholders with a help line until one of them is used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The real command; None for an unknown name."""
        if cmd_name not in self.commands:
            return None
        module, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), cmd_name.replace("-", "_"))
        return command if ctx.obj is None else _in_project(command, ctx.command_path)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in a group; an option that belongs behind a command is an error that says so."""
        return parsed(super().parse_args, ctx, args, OF_ALL)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments; a command of another library is an error that names ours."""
        if (instead := _ELSEWHERE.get(args[0])) and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}: use {ctx.command_path} {instead}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table; click's own method would import every command for its sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.short_help or "") for name, command in self.commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin with this; click's own method would import every command."""
        # Imported here, because only a shell that completes needs it.
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=command.short_help)
            for name, command in self.commands.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A PyworkersError is printed as a message on stderr, without a traceback."""
        streams.open_missing()
        streams.accept_all_text()
        try:
            return super().invoke(ctx)
        except PyworkersError as error:
            click.echo(_presented(error), err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _in_project(command: click.Command, program: str) -> click.Command:
    """A copy whose help has the examples as they are typed in a project, which has no file."""
    command = copy(command)
    typed = f"python {program}" if ".py " in program else program
    command.help = _EXAMPLE.sub(lambda found: found[1] + typed + _FILES.sub("", found[2]), command.help or "")
    if isinstance(command, click.Group):
        command.commands = {name: _in_project(inner, program) for name, inner in command.commands.items()}
    return command


def _presented(error: PyworkersError) -> str:
    traceback = error.traceback.rstrip() if isinstance(error, AppImportError) else ""
    absent = isinstance(error, RedisUnavailableError) and error.code in NOT_THERE and not error.hint
    reason = printable_lines(f"Error: {error}")
    return "\n".join(filter(None, (traceback, reason, _OTHER_ADDRESS if absent else "")))


def _group(name: str, text: str | None = None) -> Callable[[Callable[[], None]], click.Group]:
    """The decorator of a group of all commands; ``text`` is its help instead of the docstring."""
    return click.group(
        name,
        cls=_LazyGroup,
        commands={
            name: click.Command(name, short_help=sentence) for name, (_, sentence) in _COMMANDS.items()
        },
        context_settings={"help_option_names": ["-h", "--help"]},
        help=text,
    )


@_group("pyworkers")
@click.version_option(__version__, prog_name="pyworkers")
def main() -> None:
    """A worker server for Python that speaks Sidekiq's Redis protocol.

    \b
    Examples: pyworkers run --config workers.toml
              pyworkers enqueue mail SendMail '[7, "hello"]' --in 10s
    """


def run_for_project(
    words: Sequence[str], project: Project, *, program: str, text: str, standalone: bool = True
) -> None:
    """Run the command line of a project; ``text`` is the help.

    ``program`` is how the command was called. Unless it is ``standalone``, it returns at its end.
    """

    @_group("pyworkers", text)
    def commands() -> None: ...

    commands.main(list(words), program, standalone_mode=standalone, obj=project)
