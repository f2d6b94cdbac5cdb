"""The options that stand before or after any command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lace.base.limits import Value, parse_setting
from lace.cli.session import Session
from lace.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GlobalOption", "global_options"]


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


def _parse(origin: str, name: str, value: str) -> Value:
    try:
        found: Value = parse_setting(name, value)
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
