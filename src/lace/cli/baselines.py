"""Baselines of `lace disclose`: a disclosure that was saved, or the modules before an edit."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lace.cli.output import plural
from lace.cli.policy_options import ExposureArgument, parse_exposure
from lace.cli.rule_files import STANDARD_INPUT, RuleFile
from lace.errors import Place, PolicyError, UsageError
from lace.policy.disclosure import parse_disclosure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.cli.session import Session
    from lace.policy.disclosure import Disclosure

__all__ = ["Baseline", "check_baseline", "read_baselines"]

_OPTION = "--baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What to compare with: a saved disclosure, or exposure modules and their files."""

    saved: Disclosure | None = None
    name: str = ""
    modules: tuple[ExposureArgument, ...] = ()
    files: Mapping[str, RuleFile] = field(default_factory=dict)

    @property
    def is_given(self) -> bool:
        """Whether there is anything to compare with."""
        return self.saved is not None or bool(self.modules)


def read_baselines(session: Session, arguments: Sequence[str]) -> Baseline:
    """Return what the `--baseline` options name; JSON is known by its first character.

    Raises:
        UsageError: a file cannot be read, or a saved disclosure is not alone.
        PolicyError: JSON that is no saved disclosure.
    """
    named = tuple(parse_exposure(argument, _OPTION) for argument in arguments)
    files = {each.file: _read(session, each.file) for each in named}
    saved = [each for each in named if files[each.file].raw.lstrip()[:1] in (b"{", b"[")]
    if not saved:
        return Baseline(modules=named, files=files)
    (first, *_) = saved
    if len(named) > 1:
        raise UsageError(
            f"{files[first.file].name} is a saved disclosure, and there are other baselines",
            hint="compare with one of them, or with modules only",
        )
    if first.viewer is not None:
        raise UsageError(
            f"{files[first.file].name} is a saved disclosure, which has its viewer",
            hint=f"write {_OPTION} FILE without @VIEWER",
        )
    name = files[first.file].name
    try:
        return Baseline(saved=parse_disclosure(files[first.file].raw), name=name)
    except PolicyError as error:
        error.place = Place(name)
        raise


def _read(session: Session, argument: str) -> RuleFile:
    """Read a whole file: a saved disclosure may be long."""
    if argument == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="name a FILE")
        if sys.stdin.isatty():
            session.output.note("reading from the terminal; end with Ctrl-D")
        return RuleFile(argument, sys.stdin.buffer.read())
    try:
        return RuleFile(argument, Path(argument).read_bytes())
    except OSError as error:
        name = RuleFile(argument, b"").name
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name that no system takes
        raise UsageError(f"{RuleFile(argument, b'').name} cannot be read: {error}") from error


def check_baseline(session: Session, baseline: Baseline, now: Disclosure) -> None:
    """Refuse a saved disclosure of something else; tell what is not or hardly compared.

    Raises:
        PolicyError: it is of another viewer or of another lace.
    """
    before = baseline.saved
    if before is None:
        if baseline.modules and not any(each.is_for(now.viewer) for each in baseline.modules):
            count = plural(len(baseline.modules), "module")
            session.output.note(
                f"of {count} of the baseline none is for {now.viewer}, so this compares with "
                f"nothing exposed; name one with {_OPTION} FILE@{now.viewer}"
            )
        return
    for what, one, other in (
        ("viewer", before.viewer, now.viewer),
        ("lace", before.lace, now.lace),
    ):
        if one != other:
            raise PolicyError(
                f"the baseline is of another {what}: {one}, not {other}",
                place=Place(baseline.name),
                hint=f"save one of this {what} with `lace disclose --json`",
            )
    if before.sent is None or now.sent is None:
        if before.sent is not now.sent:
            lacks = (
                "the baseline does not" if before.sent is None else "there is no --peer-select to"
            )
            session.output.note(f"{lacks} say what would be sent, so that is not compared")
        return
    if (before.sent.peer_select, before.sent.select) != (now.sent.peer_select, now.sent.select):
        session.output.note("the baseline was made with other selectors")
    if before.sent.lowering != now.sent.lowering:
        session.output.note(f"the baseline was made with the lowering {before.sent.lowering}")
