"""The sample: a configuration file with every key, each with its description and its default.

Pure; used by the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyworkers.config.loading import toml_value
from pyworkers.config.options import SECTIONS, KeyPath, Option, describe

_HEAD = """\
# The configuration of pyworkers: every key, with its default.
#
#   pyworkers run --config {name}
#
# A line that starts with "#" and no space after it is a setting that is switched off. Seconds may have a
# fraction. Command line options override environment variables, which override this file. A variable's name
# is made of section and key: PYWORKERS_REDIS__URL, PYWORKERS_QUEUES__MAIL__CONCURRENCY, PYWORKERS_APP.
# `pyworkers config show` prints the values in effect.
"""
# The sections that a file may have several times, each with its header.
_NAMED = {
    ("redis", "*"): (
        "[redis.archive]",
        "# One table for each further Redis: [queues.NAME] redis = … puts queues there.",
    ),
    ("queues", "*"): ("[queues.default]", "# One table for each queue, whose keys override its decorator."),
    ("groups", "*"): ("[groups.web]", "# One table for each group: queues that share workers."),
    ("cron", "*"): ("[[cron]]", "# One table for each entry, alongside the entries of @worker.cron."),
    ("alarm", "*"): ("[[alarm]]", "# One table for each alarm of `pyworkers alarms`."),
}


def sample(name: str, values: Mapping[str, object]) -> str:
    """The file with this name; ``values`` are the values of some keys, which are switched on."""
    options = list(describe())
    parts = [_HEAD.format(name=name)]
    for path, _ in SECTIONS:
        lines = [*_header(path)]
        for option in options:
            if option.path[:-1] == path:
                lines += [f"# {option.doc}", _line(option, values)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _header(path: KeyPath) -> Iterator[str]:
    if path in _NAMED:
        header, note = _NAMED[path]
        yield from (note, f"#{header}")
    elif path:
        yield f"[{'.'.join(path)}]"


def _line(option: Option, values: Mapping[str, object]) -> str:
    """The setting; switched off if it has no default, or if its section is."""
    value = values.get(option.key, option.default)
    has_value = value is not None and option.path[:-1] not in _NAMED
    shown = option.example if value is None else value
    return f"{'' if has_value else '#'}{option.path[-1]} = {toml_value(shown)}"
