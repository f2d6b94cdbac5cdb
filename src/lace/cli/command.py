"""What every command has in common: the global options, and help with examples.

Global options stand before or after the command. A command documents its piped
output and its JSON keys as data, so that help, reference page and tests agree.
"""

from __future__ import annotations

import shutil
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from lace.api.system import SettingValue, parse_setting
from lace.cli.failures import did_you_mean
from lace.cli.output import LEAST_WIDTH, wrap_command, wrap_prose
from lace.cli.session import Session
from lace.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from click.shell_completion import CompletionItem


# -- The options that stand before or after any command.


class GlobalOption(click.Option):
    """An option that stands before or after any command."""


def _session(ctx: click.Context) -> Session | None:
    return ctx.find_object(Session)


def _take_lace(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if (session := _session(ctx)) and value is not None:
        session.lace_option = value


def _take_flag(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not (session := _session(ctx)) or not value:
        return
    match param.name:
        case "json":
            session.output.json = True
        case "quiet":
            session.output.quiet = True
        case "no_color":
            session.output.color = False
        case "debug":
            session.debug = True


def _take_settings(ctx: click.Context, _param: click.Parameter, value: Sequence[str]) -> None:
    session = _session(ctx)
    for text in value:
        name, separator, given = text.partition("=")
        if not separator:
            raise SettingError(f"--set {text!r} has no =", hint="write --set NAME=VALUE")
        number = _parse("--set", name.strip(), given)
        if session:
            session.set_options[name.strip()] = number


def _take_wait(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None and (session := _session(ctx)):
        session.set_options["wait_seconds"] = _parse("--wait", "wait_seconds", value)


def _parse(origin: str, name: str, value: str) -> SettingValue:
    try:
        found: SettingValue = parse_setting(name, value)
    except SettingError as error:
        error.message = f"{origin}: {error.message}"
        raise
    return found


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        session = _session(ctx) or Session({})
        session.output.line(f"lace {version('lace')}")
        ctx.exit()


def global_options() -> list[click.Parameter]:
    """Return the options, new for each command."""

    def option(*names: str, **rest: Any) -> GlobalOption:  # noqa: ANN401 - click's own
        return GlobalOption(names, expose_value=False, **rest)

    return [
        option(
            "--lace",
            metavar="DIR",
            callback=_take_lace,
            help="The lace's folder. Else LACE_DIR, else the nearest .lace from here upward, which "
            "has to be your own.",
        ),
        option("--json", is_flag=True, callback=_take_flag, help="Write JSON."),
        option(
            "--set",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_take_settings,
            help="Change a setting for this run; `lace config show` lists them. Repeatable.",
        ),
        option(
            "--wait",
            metavar="SECONDS",
            callback=_take_wait,
            help="How long to wait while another process writes (as --set wait_seconds=N).",
        ),
        option(
            "-q",
            "--quiet",
            is_flag=True,
            callback=_take_flag,
            help="No progress and no remarks; errors still show.",
        ),
        option(
            "--no-color",
            is_flag=True,
            callback=_take_flag,
            help="No colours (as NO_COLOR=1).",
        ),
        option(
            "--debug", is_flag=True, callback=_take_flag, help="Show where in Lace an error arose."
        ),
        option(
            "--version",
            is_flag=True,
            is_eager=True,
            callback=_show_version,
            help="Show the version and stop.",
        ),
    ]


# -- Pages of help that fit the terminal.

_NARROW: Final = 60
"""Pages narrower than this have what a word means below the word, not beside it."""


class HelpPage(click.HelpFormatter):
    """A page of help that fits the terminal, also a narrow one."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        if width is None:
            width = max(min(shutil.get_terminal_size().columns, max_width or 80), LEAST_WIDTH)
        super().__init__(indent_increment, width, max_width)

    @property
    def is_narrow(self) -> bool:
        """Whether there is no room for two columns."""
        return self.width < _NARROW

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        for line in wrap_prose(f"{heading}:", self.width, " " * self.current_indent):
            self.write(f"{line}\n")

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write words and what they mean, beside or below them."""
        if not self.is_narrow:
            super().write_dl(rows, col_max, col_spacing)
            return
        near, far = (" " * (self.current_indent + each) for each in (0, 4))
        for word, meaning in rows:
            spread = wrap_prose(word.replace("|", "| "), self.width, near, far)
            lines = [line.replace("| ", "|") for line in spread]
            lines += wrap_prose(meaning, self.width, far)
            self.write("".join(f"{line}\n" for line in lines))

    def write_example(self, line: str, meaning: str) -> None:
        """Write a command line, below what it is for."""
        near, far = (" " * (self.current_indent + each) for each in (0, 4))
        lines = [
            *wrap_prose(meaning, self.width, f"{near}# "),
            *wrap_command(line, self.width, near, far),
        ]
        self.write("".join(f"{each}\n" for each in lines))


class HelpContext(click.Context):
    """The context of a command of Lace, whose help fits the terminal."""

    formatter_class = HelpPage


def _complete_values(params: Iterable[click.Parameter]) -> None:
    """Let parameters complete what stands for their value in the help."""
    for param in params:
        # A decorator would have to say it again for each option.
        param.shell_complete = partial(_complete, param, param.shell_complete)  # type: ignore[method-assign]


def _complete(
    param: click.Parameter,
    fallback: Callable[[click.Context, str], list[CompletionItem]],
    ctx: click.Context,
    incomplete: str,
) -> list[CompletionItem]:
    from lace.cli.completion import find_values  # a command does without

    found = find_values(param, ctx, incomplete)
    return fallback(ctx, incomplete) if found is None else found


CONTEXT: Final[Mapping[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}

_SENTENCE: Final = 300
"""Characters that the summary of a command may have."""

Example = tuple[str, str]
"""A command line, and what it is for."""


class _Documentation:
    """What a command says of itself beyond its options."""

    def __init__(
        self,
        examples: Sequence[Example],
        piped: str = "",
        json_keys: Mapping[str, str] | None = None,
        api: str = "",
        shell_only: str = "",
    ) -> None:
        self.examples = tuple(examples)
        self.piped = piped
        self.json_keys = dict(json_keys or {})
        self.api = tuple(filter(None, api.split(", ")))
        """The names below `lace` with which a Python program does the same."""
        self.shell_only = shell_only
        """Why there are none."""

    def write(self, formatter: click.HelpFormatter) -> None:
        """Write the sections after the options."""
        if self.piped:
            with formatter.section("Output when piped"):
                formatter.write_text(self.piped)
        if self.json_keys:
            with formatter.section("Output with --json"):
                formatter.write_dl(list(self.json_keys.items()))
        if self.examples and isinstance(formatter, HelpPage):
            with formatter.section("Examples"):
                for number, (line, meaning) in enumerate(self.examples):
                    if number:
                        formatter.write_paragraph()
                    formatter.write_example(line, meaning)


def _write_options(made: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for param in made.get_params(ctx):
        if isinstance(param, click.Argument):
            continue
        record = param.get_help_record(ctx)
        is_shared = isinstance(param, GlobalOption) or "--help" in param.opts
        if record is not None:
            (shared if is_shared else own).append(record)
    if own:
        with formatter.section("Options"):
            formatter.write_dl(own)
    with formatter.section("Global options (before or after the command)"):
        formatter.write_dl(shared)


class LaceCommand(click.Command):
    """A command with the global options and documented output."""

    context_class = HelpContext

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        examples: Sequence[Example] = (),
        piped: str = "",
        json_keys: Mapping[str, str] | None = None,
        api: str = "",
        shell_only: str = "",
        **rest: Any,  # noqa: ANN401 - click's own
    ) -> None:
        rest.setdefault("context_settings", {**CONTEXT})
        super().__init__(*args, **rest)
        self.params += global_options()
        _complete_values(self.params)
        self.documentation = _Documentation(examples, piped, json_keys, api, shell_only)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the global ones."""
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the output is, and the examples."""
        self.documentation.write(formatter)


class LaceGroup(click.Group):
    """A group of commands; alone it says which ones there are."""

    context_class = HelpContext

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        examples: Sequence[Example] = (),
        **rest: Any,  # noqa: ANN401 - click's own
    ) -> None:
        rest.setdefault("invoke_without_command", True)
        rest.setdefault("context_settings", {**CONTEXT})
        super().__init__(*args, **rest)
        self.params += global_options()
        _complete_values(self.params)
        self.documentation = _Documentation(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with what it does, in a sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.summary(ctx, name)) for name in self.list_commands(ctx)]
            )

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return what a command does, in a sentence."""
        found = self.get_command(ctx, name)
        return "" if found is None else found.get_short_help_str(_SENTENCE)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the source, not of the alphabet."""
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        self.documentation.write(formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, or say which was perhaps meant."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            hint = did_you_mean(args[0], self._all_commands(ctx))
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def _all_commands(self, ctx: click.Context) -> dict[str, str]:
        """Return how commands are called from here: of this group, in groups, and of `lace`."""
        root = ctx.find_root()
        found = {"help": "--help", "version": "--version"}  # commands of many other programs
        for group, at in ((root.command, root), (self, ctx)):
            if not isinstance(group, click.Group):
                continue
            names = group.list_commands(at)
            for name in names:
                below = group.get_command(at, name)
                if isinstance(below, click.Group):
                    path = f"{at.command_path} {name}"
                    found |= {each: f"{path} {each}" for each in below.list_commands(at)}
            # What this group has is called by its name alone, and comes before what others have.
            found |= {n: n if group is self else f"{at.command_path} {n}" for n in names}
        return found


class LazyGroup(LaceGroup):
    """A group whose commands are modules of their own, loaded when they are named."""

    modules: Mapping[str, str] = MappingProxyType({})
    summaries: Mapping[str, str] = MappingProxyType({})
    """What commands do, for a help that does not load them; of others their own help says it."""

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return what a command does, from the register if it is there."""
        if name not in self.summaries:
            return super().summary(ctx, name)
        return click.Command(name, help=self.summaries[name]).get_short_help_str(_SENTENCE)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the register."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loading its module."""
        if cmd_name not in self.modules:
            return None
        module, _, name = self.modules[cmd_name].partition(":")
        made = getattr(import_module(module), name or "command")
        return made if isinstance(made, click.Command) else None


def command(
    name: str,
    *,
    examples: Sequence[Example],
    piped: str,
    json_keys: Mapping[str, str],
    api: str = "",
    shell_only: str = "",
    cls: type[LaceCommand] = LaceCommand,
) -> Callable[[Callable[..., int | None]], LaceCommand]:
    """Return a decorator that makes a function a command of Lace; it returns the exit code.

    `api` names what a Python program calls for the same, below `lace` and divided by commas;
    `shell_only` says why nothing does.
    """
    return click.command(
        name,
        cls=cls,
        examples=examples,
        piped=piped,
        json_keys=json_keys,
        api=api,
        shell_only=shell_only,
    )


def group(
    name: str, *, examples: Sequence[Example]
) -> Callable[[Callable[..., int | None]], LaceGroup]:
    """Return a decorator that makes a function a group of commands."""

    def decorate(function: Callable[..., int | None]) -> LaceGroup:
        return click.group(name, cls=LaceGroup, examples=examples)(function)

    return decorate


def command_paths(top: click.Group) -> list[str]:
    """Return every command below a group as it is typed after it: `list`, `key`, `key new`."""
    ctx = click.Context(top)
    found = []
    for name in top.list_commands(ctx):
        below = top.get_command(ctx, name)
        found.append(name)
        if isinstance(below, click.Group):
            found += [f"{name} {each}" for each in command_paths(below)]
    return found


def require_subcommand(ctx: click.Context) -> None:
    """Refuse a group that is called without one of its commands."""
    if ctx.invoked_subcommand is None and isinstance(ctx.command, click.Group):
        names = ", ".join(ctx.command.list_commands(ctx))
        raise click.UsageError(f"{ctx.command_path} needs a command: one of {names}", ctx=ctx)
