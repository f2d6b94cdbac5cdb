"""The options that say what an exchange is about: selectors, exposures, the viewer, facts.

Commands that preview, explain, disclose or carry out an exchange take them from here, so
that each means the same everywhere. `FILE[@VIEWER]` is read here as well.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lace.api.policy import LOWERINGS, Verifier, check_viewer
from lace.base.text import safe_text, shorten
from lace.cli.failures import Choice
from lace.errors import LaceError, Place, PolicyError, RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

_EXPOSE_HELP: Final = (
    "A local module that defines AllowQueryRecord(V,P): what viewer V may query. For one VIEWER, "
    "or for anyone; what follows the last @ is a viewer only if it is a verifier. Repeatable: of "
    "the modules for a viewer every one has to allow a record; a FILE named with several viewers "
    "is one module for each of them."
)

EXPOSE_OPTION: Final = click.option(
    "--expose", metavar="FILE[@VIEWER]", multiple=True, help=_EXPOSE_HELP
)
ADVERTISED_OPTION: Final = click.option(
    "--advertised",
    metavar="FILE",
    help="What the peer advertises: fact lines Advertised('P','S') and "
    "AdvertisedField('P','S','Name','Index','Value'). - for standard input. Values of a wrong form "
    "are refused; warned of is what no exchange would take, as a field without its Advertised.",
)
RUNTIME_OPTION: Final = click.option(
    "--runtime",
    metavar="FILE",
    help="Runtime facts: lines of Here, Peer, Transport, TransportEncrypted, StartTAI, TickTAI "
    "and ClockSkewSeconds, and _LocalTAI for exposures. - for standard input. An exchange has at "
    "most one fact of each.",
)
AT_OPTION: Final = click.option(
    "--at",
    metavar="TIME",
    help="The clock that exposures read as _LocalTAI('T'): 2026-11-20T00:00:00Z, or a TAI instant; "
    "else that of now, floored to the tick interval as in an exchange.",
)
ALLOW_UNDEFINED_OPTION: Final = click.option(
    "--allow-undefined",
    metavar="P/N",
    multiple=True,
    help="A predicate, by name and arity, that nobody defines on purpose. Any other that is "
    "undefined, and that a negated or counted atom of your rules depends on, is refused. "
    "Repeatable.",
)
LOWERING_OPTION: Final = click.option(
    "--lowering",
    type=Choice(LOWERINGS),
    help="What is asked beyond selection: nothing (the default); an encrypted transport; a "
    "proven source.",
)


FIELD_OPTION: Final = click.option(
    "--field",
    metavar="NAME",
    multiple=True,
    help="A field that your advertisements may carry; with any, those and no others are offered. "
    "Repeatable. Without --field and --all-fields they are those of Type, Group, App, Name, TAI, "
    "Signed-By, Signature, Data-Length, of receipts and of your own selector that the rules name, "
    "or those of the setting offer_fields.",
)
ALL_FIELDS_OPTION: Final = click.option(
    "--all-fields",
    is_flag=True,
    default=None,
    help="Offer all fields of the records that you advertise, not only those that rules name.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArguments:
    """What a command line says of an exchange, as it stands there."""

    select: str | None
    peer_select: str | None
    index: int
    expose: tuple[str, ...]
    viewer: str | None
    advertised: str | None
    runtime: str | None
    at: str | None
    field: tuple[str, ...]
    all_fields: bool | None
    lowering: str
    allow_undefined: tuple[str, ...]
    is_given: bool
    """Whether any of it stands on the command line."""


def exchange_options(*, required: bool) -> Callable[[Decorated], Decorated]:
    """Return a decorator that gives a command these options, as one `exchange` argument."""
    options = (
        click.option(
            "--select",
            metavar="FILE",
            required=required,
            help="Your selector: rules for SelectHave(P) and SelectAdvertised(P,S).",
        ),
        click.option(
            "--peer-select",
            metavar="FILE",
            required=required,
            help="The peer's selector; it gets the limits of a peer's rules.",
        ),
        click.option(
            "--index",
            type=Choice(["0", "1"]),
            help="Which operand you are: 0 connects (the default), 1 accepts.",
        ),
        EXPOSE_OPTION,
        click.option(
            "--viewer",
            metavar="V",
            help="The verifier that the peer has proven. It decides which exposures count, and "
            "gives the fact Peer('V') unless --runtime has one. Without it the peer has proven "
            "nothing, and only exposures to anyone count.",
        ),
        ADVERTISED_OPTION,
        RUNTIME_OPTION,
        AT_OPTION,
        FIELD_OPTION,
        ALL_FIELDS_OPTION,
        LOWERING_OPTION,
        ALLOW_UNDEFINED_OPTION,
    )
    names = [entry.name for entry in fields(PolicyArguments) if entry.name != "is_given"]

    def decorate(function: Decorated) -> Decorated:
        @wraps(function)
        def collected(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - click's own
            found = {name: given.pop(name) for name in names}
            found["is_given"] = any(value not in (None, ()) for value in found.values())
            found["index"] = int(found["index"] or 0)
            found["lowering"] = found["lowering"] or LOWERINGS[0]
            return function(*args, exchange=PolicyArguments(**found), **given)

        made: Any = collected
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]  # the same function to click

    return decorate


def offered(
    field: Sequence[str] | None, all_fields: bool | None, formats: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return what `--field` and `--all-fields` mean to a policy, by its arguments."""
    if field and all_fields:
        raise UsageError("--field and --all-fields were both given", hint="leave one of them out")
    return {
        "fields": list(field) if field else None,
        "all_fields": bool(all_fields),
        "formats": list(formats) if formats is not None else None,
    }


@dataclass(frozen=True, slots=True)
class ExposureArgument:
    """An exposure module by its file, for one viewer or for anyone."""

    file: str
    viewer: str | None

    def is_for(self, viewer: str) -> bool:
        """Tell whether it registers the module for a viewer."""
        return self.viewer is None or self.viewer == viewer


def parse_viewer(text: str, option: str = "--viewer") -> str:
    """Return a viewer that an option names."""
    try:
        return check_viewer(text)
    except PolicyError as error:
        error.place = Place(option)
        if _is_label(text):
            raise
        raise UsageError(
            error.message, rule=error.rule, place=error.place, hint=error.hint
        ) from error


def parse_exposure(argument: str, option: str = "--expose") -> ExposureArgument:
    """Return what `FILE[@VIEWER]` means; a viewer is known by its text alone."""
    if not argument:
        raise UsageError(f"{option} names no file", hint=f"write {option} FILE[@VIEWER]")
    file, at, viewer = argument.rpartition("@")
    problem = _problem(viewer) if at else "there is no viewer"
    if problem:
        _refuse_lost_viewer(argument, file, viewer, option, problem)
        return ExposureArgument(argument, None)
    if not file:
        raise UsageError(
            f"{option} {safe_text(argument)} names a viewer and no file",
            hint=f"write {option} FILE@{viewer}",
        )
    return ExposureArgument(file, viewer)


def _problem(viewer: str) -> str:
    """Return what is wrong with the text of a viewer; nothing if it is a verifier."""
    try:
        Verifier(viewer)
    except RecordError as error:
        return error.hint or error.message
    return ""


def _refuse_lost_viewer(argument: str, file: str, viewer: str, option: str, problem: str) -> None:
    """Refuse an argument that is no file, and looks as if a viewer was meant."""
    if not file or _is_there(argument):
        return
    place = Place(f"{option} {safe_text(argument)}")
    if _is_label(viewer):
        try:
            check_viewer(viewer)
        except LaceError as error:
            error.place = place
            raise
    if viewer.startswith("V.") or _is_there(file):
        raise UsageError(
            f"there is no such file, and {shorten(viewer)!r} is no viewer",
            rule="G05",
            place=place,
            hint=problem,
        )


def _is_label(viewer: str) -> bool:
    """Tell whether a text is meant as the label that a plan gives to one of its sides."""
    return viewer.startswith("Opq_")


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a name that no system takes
        return False
