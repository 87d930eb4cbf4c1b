"""The reference of the configuration, from the table of its fields.

Reads no file and no variable.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import simplejson

from contrib.reference.tables import code, plain, table
from pyworkers.config.options import LISTS, KeyPath, Option, describe

_HEAD = """# Configuration

The file is TOML: `pyworkers run --config conf/workers.toml`. The command line overrides the environment,
which overrides the file. The name of a variable has the section and the key: `PYWORKERS_REDIS__URL`,
`PYWORKERS_QUEUES__MAIL__CONCURRENCY`, `PYWORKERS_APP`. `pyworkers config check` finds an invalid value,
with its line; `pyworkers config show` prints the values in effect.
"""


def page() -> str:
    """The page: a table for each section, in the order of the sample file."""
    sections = groupby(describe(), lambda option: option.path[:-1])
    return _HEAD + "".join(_section(path, options) for path, options in sections)


def _section(path: KeyPath, options: Iterable[Option]) -> str:
    rows = [
        (f"{code(option.path[-1])} {option.type}", _default(option), _meaning(option)) for option in options
    ]
    return f"\n## {_title(path)}\n\n" + table(("key", "default", "meaning"), rows)


def _title(path: KeyPath) -> str:
    if not path:
        return "Top level"
    if path[0] in LISTS:
        return code(f"[[{path[0]}]]")
    return code("[" + ".".join("NAME" if part == "*" else part for part in path) + "]")


def _default(option: Option) -> str:
    if option.required:
        return "*required*"
    return "" if option.default is None else code(simplejson.dumps(option.default))


def _meaning(option: Option) -> str:
    least = f" At least {option.minimum:g}." if option.minimum is not None else ""
    return plain(option.doc) + least
