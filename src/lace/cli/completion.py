"""`lace completion`: the script with which a shell completes command lines of Lace.

Apart from `main`, which loads a command only when it is run.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command
from lace.cli.failures import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lace.cli.session import Session


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
        # Fish itself puts no space behind / = and :. What holds a comma, or begins with a
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
        ('eval "$(lace completion zsh)"', "in ~/.zshrc, behind compinit"),
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
    if session.output.json:
        session.output.json_document({"shell": shell, "script": text})
    else:
        session.output.text(text if text.endswith("\n") else f"{text}\n")
    return 0
