"""Alice's lace and the rule files of two people, for the commands about exchanges."""

from __future__ import annotations

from pathlib import Path

from lace.api import open_lace
from lace.record.model import Blob, Plex, Record

__all__ = [
    "ALL",
    "BOB",
    "CAROL",
    "EXPOSE_TEAM",
    "NOTES",
    "PRIVATE",
    "SHARED",
    "TEAM",
    "advertise",
    "make_lace",
    "write",
]

BOB = "V.C0X9~9NU6Sdv1zz4AitEhpIjZV3lujfVDdBfu~4b34x.H3"
CAROL = "V.vISNhGb54ALSjDPjV~ESSDbZOre1F6igmKXAU9MCeV4.H3"

ALL = "SelectHave(P) :- Have(P).\nSelectAdvertised(P,S) :- Advertised(P,S).\n"
TEAM = (
    "SelectHave(P) :- Have(P), Field(P,'Group',_,'team').\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Group',_,'team').\n"
)
EXPOSE_TEAM = "AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'team').\n"


def _plex(group: str, name: str, second: int, *headers: tuple[str, str]) -> Plex:
    return Plex(
        group=group,
        app="notes",
        name=name,
        data=name.encode(),
        tai=f"170000000{second}:000000000",
        headers=list(headers),
    )


PRIVATE = _plex("private", "diary", 1)
SHARED = _plex("team", "minutes", 2, ("Tag", "b"), ("Tag", "a"), ("+Link", f"cites {PRIVATE.id}"))
NOTES: list[Record] = [PRIVATE, SHARED, _plex("team", "plan", 3), Blob(b"picture")]
"""One private record, two of the team, one without a coordinate."""


def write(name: str, text: str) -> str:
    """Write a file into the present folder; returns its name."""
    Path(name).write_text(text, "utf-8")
    return name


def make_lace(folder: Path) -> Path:
    """Make Alice's lace, and the usual files beside it."""
    with open_lace(folder) as lace:
        lace.add_all(NOTES)
    write("all.lace", ALL)
    write("team.lace", TEAM)
    write("expose.lace", EXPOSE_TEAM)
    return folder


def advertise(*records: Record, source: str = BOB) -> str:
    """Return fact lines in which a source advertises records."""
    lines = []
    for record in records:
        lines.append(f"Advertised('{record.id}','{source}')")
        if isinstance(record, Plex):
            lines.append(f"AdvertisedField('{record.id}','{source}','Group','0','{record.group}')")
    return "".join(f"{line}\n" for line in lines)
