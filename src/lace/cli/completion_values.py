"""What a shell completes: coordinates, keys, peers, settings, files. Cheap, silent when it cannot.

What stands for a value in the help says what is completed there. A shell waits meanwhile,
so that little is read: a lace is only opened to read, and some rows of it at most.

Apart from `command`: completion opens a lace, and a command does not need that.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import click
    from click.shell_completion import CompletionItem

    from lace.api import Lace
    from lace.cli.session import Session


MOST_ROWS: Final = 2_000
"""Records that are looked at for one completion."""
MOST_ITEMS: Final = 200
"""Items that a shell is given."""
_SCHEMES: Final = ("stdio", "unix:", "tcp:", "ws:", "wss:")


def attach_completions(params: Iterable[click.Parameter]) -> None:
    """Let parameters complete what stands for their value in the help."""
    for param in params:
        kind = (param.metavar or "").strip("[]….").removesuffix("|-").rstrip("…")
        complete = _BY_OPTION.get(param.name or "") or _BY_METAVAR.get(kind)
        if complete is not None:
            # A decorator would have to say it again for each option.
            param.shell_complete = partial(_complete, complete)  # type: ignore[method-assign]


def _complete(
    find: Callable[[click.Context, str], list[CompletionItem]], ctx: click.Context, incomplete: str
) -> list[CompletionItem]:
    return find(ctx, incomplete)


def _items(texts: Iterable[str], begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    found = (text for text in dict.fromkeys(texts) if text.startswith(begun))
    return [CompletionItem(text) for text in islice(found, MOST_ITEMS)]


def _session(ctx: click.Context) -> Session:
    from lace.cli.session import Session

    return ctx.find_object(Session) or Session({})


def _from_lace(ctx: click.Context, read: Callable[[Lace], list[str]]) -> list[str]:
    """Return what a lace gives; nothing without a lace, or where it is busy or damaged."""
    try:
        with _session(ctx).reading("completion") as lace:
            return read(lace)
    except (LaceError, OSError):
        return []


def _records(ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return coordinates of the lace that go on from what was typed, part by part."""
    if begun and not begun.startswith("/"):
        return []
    return _items(_from_lace(ctx, lambda lace: list(_next_parts(lace, begun))), begun)


def _next_parts(lace: Lace, begun: str) -> Iterator[str]:
    """Yield coordinates up to the next `//` behind what was typed, so that many become few."""
    with lace.snapshot() as snapshot:
        for row in snapshot.listing(begun or "//", limit=MOST_ROWS):
            text = row.coordinate
            at = text.find("//", max(len(begun), 2))
            yield text if at < 0 else text[: at + 2]


def _verifiers(ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the verifiers of the keys of the lace, and of the peers that `lace.toml` names."""
    own = _from_lace(ctx, lambda lace: [str(each) for each in lace.keys.verifiers()])
    known = [str(table["peer"]) for table in _peers(ctx).values() if "peer" in table]
    return _items([*own, *known], begun)


def _addresses(ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the peers that `lace.toml` names, and what addresses begin with."""
    return _items([*_peers(ctx), *_SCHEMES], begun)


def _peers(ctx: click.Context) -> dict[str, dict[str, object]]:
    from lace.cli.peers import peer_tables

    try:
        folder = _session(ctx).find_folder()
        tables = {} if folder is None else peer_tables(folder)
    except (LaceError, OSError):
        return {}
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def _settings(_ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the names of settings, with what they mean."""
    from click.shell_completion import CompletionItem

    from lace.base.limits import describe_settings

    return [
        CompletionItem(f"{name}=", help=meaning)
        for name, meaning, _unit in describe_settings()
        if f"{name}=".startswith(begun)
    ]


def _files(_ctx: click.Context, begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def _folders(_ctx: click.Context, begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="dir")]


_BY_METAVAR: Final = {
    "RECORD": _records,
    "PREFIX": _records,
    "V": _verifiers,
    "ADDRESS": _addresses,
    "FILE": _files,
    "FILE[@VIEWER": _files,
    "SOURCE": _files,
    "DIR": _folders,
    "WAREHOUSE": _folders,
}
_BY_OPTION: Final = {"set": _settings}
