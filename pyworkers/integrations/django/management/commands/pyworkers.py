"""``manage.py pyworkers``: the command line of pyworkers, with the settings as its configuration.

Run by people and scripts. With ``run``, this process becomes the master of a server.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import (
    BaseCommand,
    CommandParser,
    SystemCheckError,
    handle_default_options,
)

from pyworkers.cli import run_for_project
from pyworkers.cli.options import Project
from pyworkers.errors import ConfigError
from pyworkers.integrations.django.configuration import read_settings, read_settings_again
from pyworkers.integrations.django.connections import close_all

_HELP = """Run the jobs of this project, and look at its queues.

The configuration is PYWORKERS in the settings; environment variables (REDIS_URL, PYWORKERS_SECTION__KEY) and
options override it. --settings and --pythonpath are the same as in every Django command.

\b
Examples: python manage.py pyworkers run
          python manage.py pyworkers stats
"""


class PyworkersCommand(BaseCommand):
    """``manage.py pyworkers``."""

    help = "Runs the jobs of this project, and shows its queues."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command of pyworkers; ``--settings`` and ``--pythonpath`` are Django's."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--settings")
        parser.add_argument("--pythonpath")
        options, words = parser.parse_known_args(argv[2:])
        handle_default_options(options)
        try:
            self._run(words, program=f"{Path(argv[0]).name} {argv[1]}")
        except SystemCheckError as error:
            # Each check of the tag is one of the configuration.
            self.stderr.write(str(error), lambda text: text)
            sys.exit(ConfigError.exit_code)

    def add_arguments(self, parser: CommandParser) -> None:
        """For ``call_command("pyworkers", "stats")``."""
        parser.add_argument("args", nargs=argparse.REMAINDER)

    def handle(self, *words: str, **_options: Any) -> None:
        """Run a command of pyworkers, and return at its end."""
        self._run(words, program="manage.py pyworkers", standalone=False)

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """The help of ``manage.py help pyworkers``."""
        self._run(["--help"], program=f"{Path(prog_name).name} {subcommand}", standalone=False)

    def _run(self, words: Any, *, program: str, standalone: bool = True) -> None:
        if words and words[0] == "run":
            self.check(tags=["pyworkers"])
            # The fork server and the workers must not inherit a connection that an app has opened.
            close_all()
        project = Project(read_settings, read_settings_again)
        run_for_project(words, project, program=program, text=_HELP, standalone=standalone)


Command = PyworkersCommand
"""The name that Django looks for."""
