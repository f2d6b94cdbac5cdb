"""Certificates for tests, made with the `openssl` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


@dataclass(frozen=True)
class Certificates:
    """A folder of PEM files: `NAME.pem` and `NAME.key`."""

    folder: Path

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return done.stdout


def make_certificates(folder: Path) -> Certificates:
    """An authority, a server and a client of it, a stranger for another host, a lone client."""
    made = Certificates(folder)
    self_signed(made, "authority", "basicConstraints=critical,CA:TRUE")
    self_signed(made, "alone", "subjectAltName=DNS:alone")
    signed(made, "server", NAMES)
    signed(made, "elsewhere", "subjectAltName=DNS:elsewhere.example")
    signed(made, "client", "extendedKeyUsage=clientAuth")
    return made


def new_key(made: Certificates, name: str) -> list[str | Path]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    return [*curve, "-nodes", "-keyout", made.key(name), "-subj", f"/CN={name}"]


def self_signed(made: Certificates, name: str, extension: str) -> None:
    keyed = new_key(made, name)
    openssl(
        "req", "-x509", *keyed, "-days", "2", "-addext", extension, "-out", made.certificate(name)
    )
    made.key(name).chmod(0o600)


def signed(made: Certificates, name: str, extension: str) -> None:
    request = made.folder / f"{name}.csr"
    openssl("req", *new_key(made, name), "-addext", extension, "-out", request)
    authority: list[str | Path] = [
        "-CA",
        made.certificate("authority"),
        "-CAkey",
        made.key("authority"),
    ]
    copied: list[str | Path] = [
        "-days",
        "2",
        "-copy_extensions",
        "copy",
        "-out",
        made.certificate(name),
    ]
    openssl("x509", "-req", "-in", request, *authority, "-CAcreateserial", *copied)
    made.key(name).chmod(0o600)
