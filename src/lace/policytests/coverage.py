"""Rule coverage: which rules of the files under test made a fact in at least one case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lace.rules.limits import OWN_LIMITS
from lace.rules.profiles import Profile
from lace.rules.program import assemble_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lace.engines.budget import Statistics
    from lace.policy.compile import Executable
    from lace.policytests.model import RuleText
    from lace.rules.program import CheckedProgram

__all__ = ["Coverage", "FileCoverage", "MeasuredRule", "whole_program"]


@dataclass(frozen=True, slots=True)
class MeasuredRule:
    """A rule under test: its line, its text as it was written, and its id."""

    line: int | None
    text: str
    id: str


@dataclass(slots=True)
class FileCoverage:
    """The rules of one file by their lines, and the lines of those that made a fact."""

    name: str
    rules: dict[int | None, MeasuredRule] = field(default_factory=dict)
    fired: set[int | None] = field(default_factory=set)

    @property
    def total(self) -> int:
        """How many rules the file has."""
        return len(self.rules)

    def idle(self) -> Iterator[MeasuredRule]:
        """Yield the rules that made nothing, in their order."""
        for line in sorted(self.rules, key=lambda line: line or 0):
            if line not in self.fired:
                yield self.rules[line]


class Coverage:
    """What was measured so far, by file."""

    def __init__(self) -> None:
        self._files: dict[str, FileCoverage] = {}

    @property
    def files(self) -> list[FileCoverage]:
        """The files, in the order in which they were met."""
        return list(self._files.values())

    @property
    def total(self) -> int:
        """How many rules all files have."""
        return sum(each.total for each in self._files.values())

    @property
    def fired(self) -> int:
        """How many of them made a fact."""
        return sum(len(each.fired) for each in self._files.values())

    @property
    def percent(self) -> float:
        """The share of rules that made a fact; of no rules, all."""
        return 100 * self.fired / self.total if self.total else 100.0

    def meet(self, rules: RuleText, module: CheckedProgram) -> None:
        """Count the rules of a file, whether they make anything or not."""
        if not rules.measured:
            return
        file = self._files.setdefault(rules.name, FileCoverage(rules.name))
        for position, identifier in enumerate(module.rule_ids):
            line = module.place(position).line
            text = rules.line(line) or module.lines[position]
            file.rules.setdefault(line, MeasuredRule(line, text, identifier))

    def note(self, program: CheckedProgram, statistics: Statistics) -> None:
        """Count the rules of a program that made a fact, as those they were written as."""
        for position in {run.rule for run in statistics.runs if run.made}:
            place = program.place(position)
            file = self._files.get(place.source or "")
            if file is not None and place.line in file.rules:
                file.fired.add(place.line)


def whole_program(executable: Executable) -> CheckedProgram:
    """Return all programs of a policy as one, for measuring.

    The limits under test do not apply to it: they were kept, or not, by the programs one
    by one, and each of these does a part of what this one does.
    """
    generated = executable.provenance.generated
    return assemble_program(
        [each.rule for each in generated],
        profile=Profile(name="generated", base=executable.view.profile.base),
        limits=OWN_LIMITS,
        written=[each.written for each in generated],
    )
