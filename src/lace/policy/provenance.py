"""Provenance: every generated rule leads back to the rule and the operand it came from (040).

These are facts about rules, for people and tools. No rule can read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lace.errors import Place
from lace.facts.lines import format_fact
from lace.rules.canonical import rule_id
from lace.rules.program import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lace.facts.lines import Fact
    from lace.rules.program import CheckedProgram
    from lace.rules.syntax import Rule

__all__ = ["Generated", "Provenance", "made_by", "made_of"]

_NONE: Final = MappingProxyType[str, object]({})


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated rule: the step that made it, of what, and the rule as it was written.

    `step` is one of `040-operand-scope`, `040-exposure-scope`, `040-exposure-intersection`,
    `040-query-view`, `040-intersection` and `040-lowering`; `of` is the scope or the
    predicate it was made for. `module` and `origin` are those of the operand or exposure;
    `viewer` is there when the rule reads records through the gate.
    """

    rule: Rule
    step: str
    of: str
    written: Written
    module: str | None = None
    origin: str | None = None
    viewer: str | None = None


def made_of(
    module: CheckedProgram,
    rules: Sequence[Rule],
    scope: tuple[str, str],
    part: str,
    origin: str | None = None,
    viewer: str | None = None,
) -> tuple[Generated, ...]:
    """Return what was made of the rules of a module, one of each and in their order.

    `scope` is the step that gave them theirs, and its name.
    """
    step, of = scope
    return tuple(
        Generated(
            rule,
            step,
            of,
            Written(
                number=number,
                id=identifier,
                text=line,
                part=part,
                place=module.place(number - 1),
                annotations=module.annotations.get(identifier, _NONE),
            ),
            module.id,
            origin,
            viewer,
        )
        for number, (rule, identifier, line) in enumerate(
            zip(rules, module.rule_ids, module.lines, strict=True), 1
        )
    )


def made_by(
    rules: Sequence[Rule], step: str, part: str, viewer: str | None = None
) -> tuple[Generated, ...]:
    """Return rules that were made of none; they are their own source."""
    return tuple(
        Generated(
            rule,
            step,
            str(rule.head.key).removeprefix("Merged"),
            Written(
                number=number,
                id=rule_id(str(rule)),
                text=str(rule),
                part=part,
                place=Place(),
                annotations=_NONE,
            ),
            viewer=viewer,
        )
        for number, rule in enumerate(rules, 1)
    )


@dataclass(frozen=True, slots=True)
class Provenance:
    """The sidecar of a compiled policy."""

    generated: tuple[Generated, ...]

    def facts(self) -> Iterator[Fact]:
        """Yield `RuleSource`, `RuleGeneratedBy` and `RuleOrigin` facts, rule by rule."""
        for each in self.generated:
            identifier = rule_id(str(each.rule))
            if each.module is not None:
                yield "RuleSource", identifier, each.module, each.written.id
            yield "RuleGeneratedBy", identifier, each.step, each.of
            if each.viewer is not None:
                yield "RuleGeneratedBy", identifier, "040-query-gate", each.viewer
            if each.origin is not None:
                yield "RuleOrigin", identifier, each.origin

    @property
    def text(self) -> str:
        """The sidecar as a file: its distinct fact lines, sorted bytewise, each with LF."""
        lines = {format_fact(fact) for fact in self.facts()}
        return "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.encode("utf-8")))
