"""Prints the lower bounds of setup.cfg as exact versions: a constraints file for ``pip install -c``.

Run by ``make test-lowest``. It reads install_requires and the extras that users install; the tools of tests,
documents and development are not bounded.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"
TOOLS = {"test", "dev", "docs"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*])?>=([0-9.]+)")


def lowest() -> list[str]:
    """``name==version`` for each requirement."""
    config = configparser.ConfigParser()
    config.read(SETUP)
    return sorted(set(_bounds(config)))


def _bounds(config: configparser.ConfigParser) -> Iterator[str]:
    extras = config["options.extras_require"]
    texts = [config["options"]["install_requires"], *(extras[name] for name in extras if name not in TOOLS)]
    for line in filter(None, "\n".join(texts).splitlines()):
        found = _REQUIREMENT.match(line)
        if found is None:
            raise SystemExit(f"setup.cfg: no lower bound in {line!r}")
        yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    print("\n".join(lowest()))
