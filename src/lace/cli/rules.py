"""`lace rules`: check, format, canonicalise, name and draw rules; no lace is needed."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lace.api.rules import (
    PROFILES,
    Canonical,
    canonicalize,
    check_source,
    format_dot,
    format_findings,
    format_graph,
    format_source,
    in_order,
    parse_allowed,
    profile_named,
)
from lace.base.text import safe_text
from lace.cli.command import LaceCommand, group, require_subcommand
from lace.cli.failures import Choice
from lace.cli.files import (
    STANDARD_INPUT,
    complain_findings,
    count_findings,
    finding_object,
    read_file,
    read_files,
    refusing,
    written,
)
from lace.cli.output import wrap_findings
from lace.cli.policy_files import WantedRules, check_file
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.errors import LaceError, RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lace.api import Lace
    from lace.api.rules import CheckedProgram
    from lace.cli.files import RuleFile
    from lace.cli.session import Session
    from lace.errors import Finding


# -- Drawing with Graphviz: its program `dot`, where it is installed.

_PROGRAM: Final = "dot"
_SECONDS: Final = 60
_INSTEAD: Final = "or use --format dot and draw it elsewhere"


class DrawingError(LaceError):
    """A graph cannot be drawn on this machine."""

    exit_code = 3


def draw_svg(dot: str) -> str:
    """Return a graph of the DOT language as an SVG picture."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise DrawingError(
            "drawing needs Graphviz, and its program `dot` is not installed",
            hint=f"install the package graphviz, {_INSTEAD}",
        )
    try:
        done = subprocess.run(  # noqa: S603 - the Graphviz that this machine's owner chose
            [program, "-Tsvg"],
            input=dot.encode("utf-8"),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DrawingError(
            f"Graphviz did not finish in {_SECONDS} seconds",
            hint=f"draw fewer rules, {_INSTEAD}",
        ) from error
    except OSError as error:
        raise DrawingError(
            f"{program} cannot be run: {error.strerror}", hint=f"mend it, {_INSTEAD}"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
        raise DrawingError(
            f"Graphviz failed with exit code {done.returncode}: {said or 'it does not say why'}",
            hint=f"mend it, {_INSTEAD}",
        )
    return done.stdout.decode("utf-8", "replace")


_PROFILE: Final = click.option(
    "--profile",
    type=Choice(list(PROFILES)),
    default="query",
    show_default=True,
    help="What the rules are for: it says which predicates they may read and define.",
)


@group(
    "rules",
    examples=[
        ("lace rules check policy.lace", "everything that is wrong, or looks wrong"),
        ("lace rules fmt policy.lace", "write the rules in their standard form"),
        ("lace rules id policy.lace", "the identifiers of the lacegram and its rules"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Check, format and name rules.

    The rules of one file are a lacegram. FILE may be - for standard input; these commands
    need no lace.
    """
    require_subcommand(ctx)


def _show_findings(session: Session, argument: str, findings: Sequence[Finding]) -> None:
    if session.output.json:
        for finding in findings:
            session.output.json_line(finding_object(argument, finding))
    elif session.output.terminal and findings:
        found = format_findings(findings, excerpts=True)
        session.output.cite(each for each in findings if each.severity == "error")
        session.output.lines(wrap_findings(found, session.output.width))
    else:
        for finding in findings:
            session.output.line(safe_text(finding.log_line()))


@command.command(
    "check",
    cls=LaceCommand,
    api="Lacegram.parse, Lace.check",
    piped="A line for each finding, file:line:column: message [rule]; hint. A warning has "
    "'warning: ' before its message. Nothing if all is well.",
    json_keys={
        "file": "the file, as the command line names it; one line a finding",
        "line": "the line, from 1; null if the finding is about the whole file",
        "column": "the column in characters, from 1; or null",
        "severity": "error or warning",
        "message": "what is wrong",
        "rule": "the requirement or decision that is broken, or null",
        "hint": "what to do, or null",
    },
    examples=[
        ("lace rules check policy.lace", "everything that is wrong, or looks wrong"),
        ("lace rules check --profile selector --strict *.lace", "selectors without a warning"),
        (
            "lace rules check --profile exposure view.lace --against .lace",
            "also: field names, groups and apps that no record there has",
        ),
        ("echo 'A(P) :- Have(P).' | lace rules check -", "check what another program writes"),
    ],
)
@click.argument("files", metavar="FILE…|-", nargs=-1, required=True)
@_PROFILE
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@click.option(
    "--against",
    metavar="DIR",
    help="A lace whose records are looked at: a field name, group or app that none of them has is "
    "a warning.",
)
@ALLOW_UNDEFINED_OPTION
@click.pass_obj
def check(
    session: Session,
    files: tuple[str, ...],
    profile: str,
    strict: bool,
    against: str | None,
    allow_undefined: tuple[str, ...],
) -> int:
    """Show everything that is wrong with rules, or looks wrong.

    Selectors and exposures are checked as your own, as `lace serve` would: a predicate that
    nobody defines, and that a negated or counted atom depends on, is an error there.

    The exit code is 1 if there is an error, with --strict also if there is a warning. On a
    terminal each finding comes with its place in the text, up to a hundred a file.
    """
    code = 0
    limits, chosen = session.rule_limits(), profile_named(profile)
    allowed = parse_allowed(allow_undefined) if chosen.required else None
    with ExitStack() as stack:
        lace = None
        if against is not None:
            lace = stack.enter_context(session.asking("rules check", Path(against)))
        for file in read_files(session, files):
            findings = _find(file, WantedRules(file.argument, chosen, limits, allowed), lace)
            _show_findings(session, file.argument, findings)
            session.output.flush()  # the summary comes after what it sums up
            found = f"{count_findings(findings)} in {file.name}" if findings else f"{file.name}: ok"
            session.output.note(found)
            if any(strict or finding.severity == "error" for finding in findings):
                code = 1
    return code


def _find(file: RuleFile, wanted: WantedRules, lace: Lace | None) -> Sequence[Finding]:
    """Return everything that is found in a file of rules, by itself and against a lace."""
    try:
        program = check_file(file, wanted)
    except RuleError as error:
        return error.findings
    if lace is None:
        return program.warnings
    from lace.api.query import find_strange_names  # needs NumPy

    lines = file.raw.decode("utf-8").split("\n")
    strange = find_strange_names(lace.store, [program], lines)
    return in_order((*program.warnings, *strange))


def _diff_lines(before: str, after: str, name: str) -> list[str]:
    """Return a unified diff, its lines without their ends."""
    import difflib  # only where a difference is wanted

    old, new = _keep_ends(before), _keep_ends(after)
    lines: list[str] = []
    for line in difflib.unified_diff(old, new, fromfile=name, tofile=name):
        lines.append(line.removesuffix("\n"))
        if not line.endswith("\n"):
            lines.append("\\ No newline at end of file")
    return lines


def _keep_ends(text: str) -> list[str]:
    """Return the lines of text, which end at LF and nowhere else."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


@dataclass(frozen=True, slots=True)
class _Formatting:
    """What to do with each file and its standard form."""

    session: Session
    check: bool
    diff: bool
    stdout: bool

    def treat(self, file: RuleFile) -> bool:
        """Format one file; tell whether all is well with it."""
        output = self.session.output
        try:
            after = format_source(file.text(), name=file.name, limits=self.session.rule_limits())
        except RuleError as error:
            if output.json:
                found = [finding_object(file.argument, each) for each in error.findings]
                output.json_line({"file": file.argument, "changed": False, "findings": found})
            else:
                output.flush()
                complain_findings(self.session, error.findings)
            output.note(f"{count_findings(error.findings)} in {file.name}: left as it is")
            return False
        before = file.raw.decode("utf-8")
        changed = before != after
        to_stdout = self.stdout or (
            file.argument == STANDARD_INPUT and not self.check and not self.diff
        )
        if changed and not (self.check or self.diff or to_stdout):
            _rewrite(file, after)
        lines = _diff_lines(before, after, file.name) if self.diff else []
        if output.json:
            more = {"diff": "".join(f"{line}\n" for line in lines)} if self.diff else {}
            text = {"text": after} if to_stdout else {}
            output.json_line({"file": file.argument, "changed": changed, **more, **text})
        elif to_stdout:
            output.text(after)
        elif self.diff:
            for line in lines:
                output.line(line)
        elif changed:
            output.line(file.name)
        return not (changed and self.check)


def _rewrite(file: RuleFile, text: str) -> None:
    if not Path(file.argument).is_file():
        raise UsageError(f"{file.name} is not a file that can be replaced", hint="use --stdout")
    with written(file.argument) as target:
        target.write(text.encode("utf-8"))


@command.command(
    "fmt",
    cls=LaceCommand,
    api="api.rules.format_source",
    piped="The names of the files that were changed, or with --check would be, a line each. "
    "With --diff a unified diff; with --stdout, and for standard input, the formatted text.",
    json_keys={
        "file": "the file, as the command line names it; one line a file",
        "changed": "true if the standard form differs from what was in the file",
        "diff": "with --diff, the unified diff",
        "text": "with --stdout or for standard input, the formatted text",
        "findings": "if the file does not parse, a list of findings as `rules check` gives them",
    },
    examples=[
        ("lace rules fmt *.lace", "write the rules of these files in their standard form"),
        ("lace rules fmt --check --diff *.lace", "change nothing; fail if a file is untidy"),
        ("lace rules fmt - < policy.lace", "format from a pipe, as an editor does"),
    ],
)
@click.argument("files", metavar="FILE…|-", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if one would.")
@click.option("--diff", is_flag=True, help="Change nothing; show what would change.")
@click.option("--stdout", is_flag=True, help="Change nothing; write the formatted text.")
@click.pass_obj
def fmt(
    session: Session, files: tuple[str, ...], only_check: bool, diff: bool, stdout: bool
) -> int:
    """Write rules in their standard form, with comments kept.

    Rules become canonical lines, groups are divided by one blank line; no identifier
    changes. A file is replaced as a whole, and only if it changes. A file that does not parse
    is left alone, its findings are shown, and the exit code is 1.
    """
    if stdout and (only_check or diff):
        raise click.UsageError("--stdout excludes --check and --diff")
    formatting = _Formatting(session, only_check, diff, stdout)
    well = [formatting.treat(file) for file in read_files(session, files)]
    return 0 if all(well) else 1


def _canonicalize(session: Session, argument: str) -> Canonical:
    file = read_file(session, argument)
    try:
        return canonicalize(file.text(), name=file.name, limits=session.rule_limits())
    except RuleError as error:
        raise refusing(session, file, error) from error


@command.command(
    "canonical",
    cls=LaceCommand,
    api="Lacegram.canonical",
    piped="The canonical text, a line for each rule, without a line feed after the last.",
    json_keys={"id": "the R. identifier", "canonical": "the canonical text"},
    examples=[
        ("lace rules canonical policy.lace > policy.canonical", "the text that the id names"),
    ],
)
@click.argument("file", metavar="FILE|-")
@click.pass_obj
def canonical(session: Session, file: str) -> int:
    """Write the canonical text of rules: what is exchanged, and what the R. identifier names.

    Comments, annotations and blank lines are not in it. Only the syntax is checked.
    """
    made = _canonicalize(session, file)
    session.output.answer({"id": made.id, "canonical": made.text})
    if not session.output.json:
        session.output.text(made.text)
    return 0


@command.command(
    "id",
    cls=LaceCommand,
    api="Lacegram.id, Lacegram.rule_ids",
    piped="The R. identifier of the lacegram on the first line; then for each rule, in its "
    "order, the U. identifier, a tab and the canonical rule.",
    json_keys={
        "id": "the R. identifier of the lacegram",
        "rules": "a list of {id, rule, annotations}: the U. identifier, the canonical rule, and "
        "the annotations of all rules that are equal to it",
    },
    examples=[
        ("lace rules id policy.lace", "the identifiers of the lacegram and its rules"),
        ("lace rules id policy.lace | head -n 1", "that of the lacegram alone"),
    ],
)
@click.argument("file", metavar="FILE|-")
@click.pass_obj
def identify(session: Session, file: str) -> int:
    """Write the identifier of a lacegram, and of each of its rules.

    They are hashes of the canonical text, so formatting and comments do not change them.
    Only the syntax is checked.
    """
    made = _canonicalize(session, file)
    lines = made.text.split("\n") if made.rule_ids else []
    rules = list(zip(made.rule_ids, lines, strict=True))
    described = [
        {"id": name, "rule": line, "annotations": dict(made.annotations.get(name, {}))}
        for name, line in rules
    ]
    gap = "  " if session.output.terminal else "\t"
    shown = (f"{name}{gap}{line}" for name, line in rules)
    document = {"id": made.id, "rules": described}
    session.output.answer(document, made.id, *shown, is_wrapped=True)
    return 0


@command.command(
    "graph",
    cls=LaceCommand,
    api="Lacegram.strata, api.rules.format_graph",
    piped="For each stratum, lowest first, its predicates with the lines of their rules and what "
    "they use; then the base facts they need. With --format dot or svg, such a drawing.",
    json_keys={
        "strata": "a list of strata, lowest first, each a list of predicates Name/arity",
        "dependencies": "a list of {predicate, uses, how}; how is positive, negative or "
        "cardinality",
        "base": "the base predicates that the rules read",
    },
    examples=[
        ("lace rules graph policy.lace", "which predicates depend on which"),
        ("lace rules graph policy.lace --format svg > policy.svg", "a drawing (needs Graphviz)"),
    ],
)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--format",
    "form",
    type=Choice(["text", "dot", "svg"]),
    help="How to write it: text (the default), DOT, or SVG drawn by Graphviz.",
)
@_PROFILE
@click.pass_obj
def graph(session: Session, file: str, form: str | None, profile: str) -> int:
    """Show the strata of rules, and how their predicates depend on one another.

    The rules must be legal; `lace rules check` says why they are not.
    """
    if form is not None and session.output.json:
        raise click.UsageError("--format and --json exclude each other")
    source = read_file(session, file)
    try:
        program = check_source(
            source.text(),
            profile=profile_named(profile),
            limits=session.rule_limits(),
            name=source.name,
        )
    except RuleError as error:
        raise refusing(session, source, error) from error
    if session.output.json:
        session.output.json_document(_graph_object(program))
        return 0
    match form:
        case "dot":
            session.output.text(format_dot(program))
        case "svg":
            session.output.text(draw_svg(format_dot(program)))
        case _:
            for line in format_graph(program).removesuffix("\n").split("\n"):
                session.output.say(line)
    return 0


def _graph_object(program: CheckedProgram) -> Mapping[str, object]:
    edges = {(str(e.head), str(e.target), e.use.value) for e in program.dependencies.edges()}
    return {
        "strata": [list(map(str, stratum)) for stratum in program.strata],
        "dependencies": [
            {"predicate": head, "uses": target, "how": use} for head, target, use in sorted(edges)
        ],
        "base": list(map(str, program.required_base)),
    }
