"""``python -m pyworkers`` is the command ``pyworkers``."""

from pyworkers.cli import main

if __name__ == "__main__":
    main(prog_name="pyworkers")
