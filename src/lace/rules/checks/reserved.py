"""Reserved names: base predicates, built-ins, removed built-ins, and what a profile keeps (030).

Each finding names the predicate as the author wrote it. A predicate that a profile
forbids is reported once, where it first occurs; a forbidden head at every rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lace.rules.findings import show
from lace.rules.syntax import BUILTINS, Atom, PredicateKey, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lace.rules.findings import Reporter
    from lace.rules.profiles import Profile
    from lace.rules.syntax import Rule

__all__ = ["REMOVED", "check_required", "check_reserved"]

REMOVED: Final = PredicateKey("Prefix", 2)
"""A built-in of earlier texts; TextShape replaces it. Other arities are ordinary predicates."""


def check_reserved(rules: Iterable[Rule], profile: Profile, reporter: Reporter) -> None:
    """Report heads and atoms whose names a lacegram of this profile may not use."""
    check = _Reserved(profile, reporter)
    for rule in rules:
        check.head(rule.head)
        for _, atom in rule.uses():
            check.mention(atom)


def check_required(
    defined: Iterable[PredicateKey], profile: Profile, last_line: int, reporter: Reporter
) -> None:
    """Report what a module of this profile must define and does not."""
    known = set(defined)
    for predicate in profile.required:
        if predicate not in known:
            reporter.error(
                profile.decision,
                Span(last_line, 1, 2),
                f"no rule defines {predicate}: every {profile.name} module does",
            )


class _Reserved:
    """What one profile says about names."""

    def __init__(self, profile: Profile, reporter: Reporter) -> None:
        self._profile = profile
        self._report = reporter
        self._mentioned: set[PredicateKey] = set()

    def head(self, atom: Atom) -> None:
        key, profile = atom.key, self._profile
        if atom.name in BUILTINS:
            self._report.error("G16", atom.name_span, f"{atom.name} cannot be a head")
        elif key == REMOVED:
            self._removed(atom)
        elif key in profile.undefinable:
            self._report.error(
                "030-47",
                atom.name_span,
                f"{key} is a base predicate, which no rule defines",
                "choose another name",
            )
        elif atom.name.startswith("_") and not profile.local_heads:
            self._report.error(
                "030-51",
                atom.name_span,
                f"{profile.name} modules cannot define {key}, which begins with _",
                f"call it {atom.name[1:]}",
            )
        elif profile.is_reserved(key):
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot define {key}, which is reserved",
                "choose another name",
            )

    def mention(self, atom: Atom) -> None:
        key, profile = atom.key, self._profile
        if key == REMOVED:
            self._removed(atom)
            return
        if key in self._mentioned:
            return
        self._mentioned.add(key)
        if key in profile.unreadable:
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot read {key}",
                f"they read {', '.join(sorted(map(str, profile.base)))}",
            )
        elif profile.closed and key not in profile.base and profile.is_reserved(key):
            self._report.error(
                profile.decision,
                atom.name_span,
                f"{profile.name} modules cannot mention {key}, which is reserved",
                "choose another name",
            )

    def _removed(self, atom: Atom) -> None:
        first, second = atom.terms
        self._report.error(
            "030-145",
            atom.name_span,
            f"{REMOVED} is not part of the language",
            show(f"write TextShape({first},{second},'','')"),
        )
