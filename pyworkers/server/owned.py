"""The program of an owned server: ``python -m pyworkers.server.owned FD``, the socket to its owner.

Runs as the master. Started by ``pyworkers.serve`` alone.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from pyworkers import streams
from pyworkers.errors import PyworkersError
from pyworkers.server import serve
from pyworkers.server.owner import Owner


def main(fd: int) -> int:
    """Run the server; return its exit code."""
    streams.open_missing()
    with socket.socket(fileno=fd) as channel, suppress(EOFError):
        # Programs that jobs start must not hold it.
        channel.set_inheritable(False)
        owner = Owner(channel)
        try:
            serve(owner.config(), fail_fast=True, owner=owner)
        except PyworkersError as error:
            print(f"Error: {error}", file=sys.stderr)
            owner.failed(error)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
