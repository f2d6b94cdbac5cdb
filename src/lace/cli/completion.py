"""`lace completion`: the script with which a shell completes command lines of Lace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import command as lace_command

if TYPE_CHECKING:
    from lace.cli.session import Session

__all__ = ["COMPLETION_VARIABLE", "command"]

COMPLETION_VARIABLE: Final = "_LACE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")
_BASH_END: Final = "\n    return 0\n"
_BASH_NO_SPACE: Final = """
    # A part of a coordinate, a setting and a scheme go on behind what was completed.
    if [[ ${COMPREPLY[0]} =~ (//|=|:)$ ]]; then
        compopt -o nospace
    fi
"""


@lace_command(
    "completion",
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
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(_SHELLS))
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
    if shell == "bash":
        text = text.replace(_BASH_END, f"{_BASH_NO_SPACE}{_BASH_END}")
    if session.output.json:
        session.output.json_document({"shell": shell, "script": text})
    else:
        session.output.text(text if text.endswith("\n") else f"{text}\n")
    return 0
