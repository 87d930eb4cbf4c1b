"""The program ``pyworkers``, also as ``python -m pyworkers``."""

from __future__ import annotations

import atexit
import gc

from pyworkers.cli import main


def run() -> None:
    """Run the command line in a process that ends with it."""
    # The memory goes with the process: no search for garbage in it at the exit, a tenth of a command.
    atexit.register(gc.freeze)
    main(prog_name="pyworkers")


if __name__ == "__main__":
    run()
