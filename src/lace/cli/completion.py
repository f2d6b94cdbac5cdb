"""`lace completion`: what a shell completes, and the script with which it asks."""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from lace.cli.command import command as lace_command
from lace.cli.failures import Choice
from lace.cli.session import Session
from lace.errors import LaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lace.api import Lace


# -- What a shell completes. It waits meanwhile, so little is read, and a failure is silent.

MOST_ROWS: Final = 2_000
"""Records that are looked at for one completion."""
MOST_ITEMS: Final = 200
"""Items that a shell is given."""
_SCHEMES: Final = ("stdio", "unix:", "tcp:", "ws:", "wss:")


def find_values(
    param: click.Parameter, ctx: click.Context, begun: str
) -> list[CompletionItem] | None:
    """Return what a parameter completes, by what stands for its value in the help."""
    kind = (param.metavar or "").strip("[]….").removesuffix("|-").rstrip("…")
    complete = _BY_OPTION.get(param.name or "") or _BY_METAVAR.get(kind)
    return None if complete is None else complete(ctx, begun)


def _items(texts: Iterable[str], begun: str) -> list[CompletionItem]:
    found = (text for text in dict.fromkeys(texts) if text.startswith(begun))
    return [CompletionItem(text) for text in islice(found, MOST_ITEMS)]


def _session(ctx: click.Context) -> Session:
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
    """Yield coordinates up to the next `//` after what was typed, so that many become few."""
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
    from lace.api.system import describe_settings

    return [
        CompletionItem(f"{name}=", help=meaning)
        for name, meaning, _unit in describe_settings()
        if f"{name}=".startswith(begun)
    ]


def _ids(_ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the ids that messages show, with the rules that they mean."""
    from lace.api.explain import explanations

    found = (e for e in explanations().values() if e.id.lower().startswith(begun.lower()))
    return [CompletionItem(each.id, help=each.statement) for each in found]


def _paths(kind: str) -> Callable[[click.Context, str], list[CompletionItem]]:
    return lambda _ctx, begun: [CompletionItem(begun, type=kind)]


_BY_METAVAR: Final = {
    "RECORD": _records,
    "PREFIX": _records,
    "V": _verifiers,
    "ADDRESS": _addresses,
    "ID": _ids,
    "FILE": _paths("file"),
    "FILE[@VIEWER": _paths("file"),
    "SOURCE": _paths("file"),
    "DIR": _paths("dir"),
    "WAREHOUSE": _paths("dir"),
}
_BY_OPTION: Final = {"set": _settings}


# -- The script of a shell.

COMPLETION_VARIABLE: Final = "_LACE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
_BASH_END: Final = "\n    return 0\n"
_BASH_NO_SPACE: Final = """
    # A part of a coordinate, a setting and a scheme go on behind what was completed.
    if [[ ${COMPREPLY[0]} =~ (//|=|:)$ ]]; then
        compopt -o nospace
    fi
"""
_ZSH_TAKE: Final = """\
            if [[ "$descr" == "_" ]]; then
                completions+=("$key")
"""
_ZSH_TAKE_OPEN: Final = """\
            if [[ "$key" == *// || "$key" == *= || "$key" == *: ]]; then
                # A part of a coordinate, a setting and a scheme go on behind it: no space.
                open_completions+=("$key")
            elif [[ "$descr" == "_" ]]; then
                completions+=("$key")
"""
_ZSH_GIVE: Final = """\
    if [ -n "$completions" ]; then
"""
_ZSH_GIVE_OPEN: Final = """\
    if [ -n "$open_completions" ]; then
        compadd -U -V unsorted -S '' -a open_completions
    fi

"""
_CHANGES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "bash": ((_BASH_END, f"{_BASH_NO_SPACE}{_BASH_END}"),),
        "zsh": (
            ("    local -a response\n", "    local -a response\n    local -a open_completions\n"),
            (_ZSH_TAKE, _ZSH_TAKE_OPEN),
            (_ZSH_GIVE, f"{_ZSH_GIVE_OPEN}{_ZSH_GIVE}"),
        ),
        # Fish itself adds no space after / = and :. What holds a comma, or begins with a
        # hyphen, has to come through whole.
        "fish": (
            ('(string split "," $completion)', '(string split -m 1 -- "," $completion)'),
            ("echo $metadata[2];", "printf '%s\\n' $metadata[2];"),
        ),
    }
)
"""What is put in place of what in click's scripts."""


@lace_command(
    "completion",
    shell_only="the script is for a shell",
    piped="The script.",
    json_keys={"shell": "bash, zsh or fish", "script": "its text"},
    examples=[
        ('eval "$(lace completion bash)"', "in ~/.bashrc"),
        ('eval "$(lace completion zsh)"', "in ~/.zshrc, after compinit"),
        (
            "lace completion fish > ~/.config/fish/completions/lace.fish",
            "once; fish finds it there",
        ),
    ],
)
@click.argument("shell", metavar="bash|zsh|fish", type=Choice(_SHELLS))
@click.pass_obj
def command(session: Session, shell: str) -> int:
    """Print the script with which a shell completes names.

    Commands and options, coordinates of records, keys, the peers of lace.toml and the names of
    settings are completed. The script asks `lace` itself each time the key is pressed.
    """
    from click.shell_completion import get_completion_class

    from lace.cli.main import cli

    made = get_completion_class(shell)
    if made is None:
        raise AssertionError("click knows these shells")
    # What is asked for is the text alone: whether this machine's shell is new enough, it says.
    script = made(cli, {}, "lace", COMPLETION_VARIABLE)
    text = script.source_template % script.source_vars()
    for old, new in _CHANGES[shell]:
        text = text.replace(old, new)
    session.output.answer({"shell": shell, "script": text}, *text.removesuffix("\n").split("\n"))
    return 0
