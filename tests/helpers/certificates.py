"""Certificates for one scenario: an authority, and files of Redis and of its clients that can be renewed."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme

HOST = "127.0.0.1"


class Certificates:
    """The files ``ca.pem``, ``server.pem``, ``server.key``, ``client.pem`` and ``client.key`` of a folder."""

    def __init__(self, folder: Path, *names: str, expired: bool = False) -> None:
        """``names`` are those in the certificate of the server."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca, self.server, self.server_key, self.client, self.client_key = (
            folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")
        )
        self.admin = folder / "admin.pem"
        """Certificate and key of the test itself."""
        self._names = names or (HOST, "localhost")
        self._not_after = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC) if expired else None
        self.renew()

    def renew(self) -> None:
        """Replace all files by those of another authority."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        leaf = authority.issue_cert(*self._names, not_after=self._not_after)
        _write(leaf, self.server, self.server_key)
        _write(authority.issue_cert("client"), self.client, self.client_key)
        authority.issue_cert("admin").private_key_and_cert_chain_pem.write_to_path(str(self.admin))

    @property
    def of_redis(self) -> dict[str, str]:
        """The settings of a Redis, or of a sentinel, without its port."""
        return {
            "tls-cert-file": str(self.server),
            "tls-key-file": str(self.server_key),
            "tls-ca-cert-file": str(self.ca),
            "tls-replication": "yes",
        }

    @property
    def of_clients(self) -> dict[str, str]:
        """The fields of ``[redis]``."""
        files = {"ca_file": self.ca, "cert_file": self.client, "key_file": self.client_key}
        return {name: str(file) for name, file in files.items()}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of ``[redis]``."""
        return {f"PYWORKERS_REDIS__{name.upper()}": file for name, file in self.of_clients.items()}


def _write(leaf: trustme.LeafCert, certificate: Path, key: Path) -> None:
    leaf.cert_chain_pems[0].write_to_path(str(certificate))
    leaf.private_key_pem.write_to_path(str(key))
