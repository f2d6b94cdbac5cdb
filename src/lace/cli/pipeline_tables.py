"""`lace pipeline status|verify|diff|export|export-lace`: what a warehouse holds.

Apart from `pipeline`, which has the stages: together they would be too long.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from lace.api.warehouse import MAX_SAMPLE, SELECTED, open_warehouse
from lace.base.text import safe_text
from lace.cli.command import command as lace_command
from lace.cli.export import Target, check_output
from lace.cli.failures import Choice
from lace.cli.files import read_file, refusing, written
from lace.cli.output import TableColumn, plural, size_text, time_text
from lace.cli.pipeline import (
    SparkArguments,
    note_without_facts,
    read_rules,
    spark_options,
    warehouse_argument,
)
from lace.cli.policy_files import read_public_facts
from lace.cli.policy_options import ALLOW_UNDEFINED_OPTION
from lace.cli.progress import Progress
from lace.errors import RuleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lace.api.warehouse import Checked, Fact, Intake, Rejected, Warehouse
    from lace.cli.output import Output
    from lace.cli.session import Session
    from lace.errors import RecordError


_FIELD = "facts/Field"


@lace_command(
    "status",
    api="Warehouse.status",
    piped="Lines of a name and a number: generation, sources, records, without_facts, "
    "quarantined, texts, files, bytes; then `facts PREDICATE` and a number for each predicate, "
    "`derived NAME PREDICATE` for each table of derived facts, `advertised NAME` for each run "
    "of advertise, and `rows TABLE` and `size TABLE` (bytes) for each table. --json has the last "
    "runs as well. With --quarantine, one line a fault instead, tab-separated: file, byte offset, "
    "rule, reason.",
    json_keys={
        "generation": "how many commits there were",
        "sources": "how many files were ingested",
        "records": "how many records there are",
        "without_facts": "how many of them have no facts yet",
        "quarantined": "how many faults were met",
        "texts": "how many texts the dictionary has",
        "files": "how many files the warehouse consists of",
        "bytes": "their bytes",
        "facts": "an object of the number of facts by predicate",
        "derived": "an object of the number of derived facts by name and predicate",
        "advertised": "an object of the number of advertised records by name",
        "tables": "an object by table of {rows, files, bytes}",
        "runs": "a list of {stage, generation, finished (TAI), seconds, rows}, the last 20 commits "
        "of stages, the newest first; rows are those of the files that it brought",
        "quarantine": "a list of {path, offset, rule, reason}: what was rejected (--quarantine)",
    },
    examples=[
        ("lace pipeline status big.wh", "what is in it"),
        ("lace pipeline status big.wh --quarantine", "what was rejected, and why"),
    ],
)
@warehouse_argument
@click.option(
    "--quarantine",
    is_flag=True,
    help="Show what was rejected: the file, the byte offset, the rule that is broken and why. "
    "Needs pyarrow.",
)
@click.pass_obj
def status(session: Session, warehouse: str, quarantine: bool) -> int:
    """Show what a warehouse holds: counts, tables with rows and sizes, and the last runs.

    A run is a stage that committed something: ingest, facts, evaluate or advertise. Its time
    begins with the command, or with the commit before it. Needs neither Spark nor Java.
    """
    opened = open_warehouse(warehouse)
    found = dict(opened.status())
    if session.output.json:
        if quarantine:
            found["quarantine"] = [each.to_json() for each in opened.rejected()]
        session.output.json_document(found)
        return 0
    if quarantine:
        _show_rejected(session.output, opened.rejected())
        return 0
    if session.output.table_wanted:
        _show_tables(session.output, found)
        return 0
    counts = {name: value for name, value in found.items() if isinstance(value, int)}
    parts = {
        f"{part} {name}": count
        for part in ("facts", "derived", "advertised")
        for name, count in found[part].items()
    }
    for measure, name in (("rows", "rows"), ("bytes", "size")):
        parts |= {f"{name} {table}": each[measure] for table, each in found["tables"].items()}
    session.output.counts({**counts, **parts})
    return 0


def _number(value: int) -> str:
    return f"{value:,}"


_REJECTED = (
    TableColumn("file", style="bold"),
    TableColumn("offset", "right", shown=_number),
    TableColumn("rule"),
    TableColumn("reason"),
)
_TABLES = (
    TableColumn("table", style="bold"),
    TableColumn("rows", "right", shown=_number),
    TableColumn("files", "right", goes=1, shown=_number),
    TableColumn("size", "right", shown=size_text),
)
_RUNS = (
    TableColumn("last runs", style="bold"),
    TableColumn("finished (UTC)", shown=time_text),
    TableColumn("took", "right", shown="{:,.1f} s".format),
    TableColumn("rows", "right", shown=_number),
)


def _show_rejected(output: Output, found: Iterable[Rejected]) -> None:
    """Show what was rejected, and why."""
    rows: Iterable[tuple[object, ...]]
    rows = ((each.path, each.offset, each.rule or "", each.reason) for each in found)
    if output.table_wanted:
        rows = list(rows)
        if not rows:
            output.note("nothing was rejected")
            return
    output.show(rows, _REJECTED)


def _show_tables(output: Output, found: Mapping[str, Any]) -> None:
    """Show it to a person: the counts, the tables, and the last runs."""
    names = ("generation", "sources", "records", "without_facts", "quarantined", "texts", "files")
    counts = [(name.replace("_", " "), _number(found[name])) for name in names]
    columns = (TableColumn("", style="bold"), TableColumn("", "right"))
    output.table(columns, [*counts, ("size", size_text(found["bytes"]))], heading=False)
    if found["tables"]:
        output.line("")
        output.show(_table_rows(found["tables"]), _TABLES)
    if found["runs"]:
        output.line("")
        keys = ("stage", "finished", "seconds", "rows")
        output.show([[run[key] for key in keys] for run in found["runs"]], _RUNS)


def _table_rows(tables: Mapping[str, Mapping[str, int]]) -> list[tuple[str | int, ...]]:
    """Return a row for each table; the many of Field, kept apart by Name, are one."""
    merged: dict[str, list[int]] = {}
    for table, measured in tables.items():
        sums = merged.setdefault(_FIELD if table.startswith(f"{_FIELD}/") else table, [0, 0, 0])
        for at, measure in enumerate(("rows", "files", "bytes")):
            sums[at] += measured[measure]
    return [(name, *sums) for name, sums in merged.items()]


# -- `lace pipeline verify`: every file of a warehouse, and what its tables say of its records.

_DAMAGED = 6
_COUNTS = ("files", "bytes", "damaged", "validated", "wrong")
_PROVEN = ("validated", "records", "facts", "advertisements", "roots", "derived", "wrong")


@lace_command(
    "verify",
    api="Warehouse.verify",
    piped="Lines of a name and a number: files, bytes, damaged, validated (records, again), wrong; "
    "with --sample or --all also records, facts, advertisements, roots and derived (that were "
    "compared); then a line that begins with `damage: ` for each damaged file or wrong answer, the "
    "first 1,000 of them, and one with `not compared: ` for each evaluation that was not.",
    json_keys={
        "files": "how many files were checked",
        "bytes": "their bytes",
        "damaged": "how many are not as they were committed",
        "damage": "a list of {path, reason}",
        "validated": "how many records were validated again, with their signatures",
        "records": "how many records were compared with their facts (--sample, --all)",
        "facts": "how many facts these have",
        "advertisements": "how many advertisements were compared",
        "roots": "how many Merkle roots were computed again",
        "derived": "how many derived facts were compared with what the embedded engine derives",
        "wrong": "how many of all these are not what they should be",
        "faults": "a list of {what, reason}",
        "uncompared": "a list of {what, reason}: evaluations of too many records to be compared, "
        "or by another version of Lace",
    },
    examples=[
        ("lace pipeline verify big.wh", "compare every file with the manifest"),
        ("lace pipeline verify big.wh --sample 1000", "and the tables with 1,000 records"),
    ],
)
@warehouse_argument
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(1, MAX_SAMPLE),
    help="Validate this many records, and compare the tables with them.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Validate every record, and compare the tables with it.",
)
@spark_options
@click.pass_obj
def verify(
    session: Session,
    warehouse: str,
    sample: int | None,
    everything: bool,
    spark: SparkArguments,
) -> int:
    """Compare every file of a warehouse with its manifest.

    Size, BLAKE3 digest and rows. Records are validated again, with their signatures: 1,000 chosen
    by chance, with --sample that many, with --all every one. With these two the tables are also
    compared with them: facts are made again from the bytes of records, and each record's set of
    facts is compared by its digest; so are advertisements, and Merkle roots are computed again.
    Derived tables are compared with what the embedded engine derives by the same rules from all
    records, if these are no more than the setting warehouse_embedded_records; else it is said that
    they were not compared, as it is of those that another version of Lace has evaluated in its own
    way. Exit code 6 when anything is not as it should be. Without these options
    neither Spark nor Java is needed.
    """
    opened = open_warehouse(warehouse, settings=session.settings(None)[0])
    with ExitStack() as shown:
        total = opened.status()["bytes"]
        progress = shown.enter_context(Progress(session, "verify", total, "bytes"))
        found = opened.verify(
            sample=sample,
            everything=everything,
            report=lambda seen: progress.update(seen.bytes),
            **spark.options(session, "verify", shown),
        )
    _show(session, found)
    return 0 if found.is_sound else _DAMAGED


def _show(session: Session, found: Checked) -> None:
    output, proof = session.output, found.proof
    counts = {name: getattr(found, name) for name in _COUNTS}
    reports = {}
    if proof is not None:
        counts |= {name: getattr(proof, name) for name in _PROVEN}
        reports = {"faults": proof.faults, "uncompared": proof.uncompared}
    document: dict[str, object] = {**counts}
    document["damage"] = [{"path": path, "reason": reason} for path, reason in found.damage]
    for name, each in reports.items():
        document[name] = [{"what": what, "reason": reason} for what, reason in each]
    output.counts(counts, document)
    if not output.json:
        for what, reason in [*found.damage, *reports.get("faults", ())]:
            output.say(safe_text(f"damage: {what}: {reason}"))
        for what, reason in reports.get("uncompared", ()):
            output.say(safe_text(f"not compared: {what}: {reason}"))
    again = "make the warehouse again from its sources"
    if found.damaged:
        output.complain(
            f"lace: the warehouse is damaged: {plural(found.damaged, 'file')} found; put them "
            f"back from a copy, or {again}"
        )
    elif found.wrong:
        output.complain(
            f"lace: the warehouse has records that are not valid: {plural(found.wrong, 'fault')} "
            f"found; {again}"
        )
    elif proof is not None and proof.wrong:
        output.complain(
            f"lace: the tables do not say what the records do: {plural(proof.wrong, 'fault')} "
            f"found; {again}"
        )


# -- `lace pipeline diff`: what two advertisement states of a warehouse, or a peer's, do not share.

_KINDS = ("a", "b", "differs")


def _side(session: Session, warehouse: Warehouse, text: str) -> str | tuple[Fact, ...]:
    """Return the name of a state, or the facts of a peer's listing."""
    if text in warehouse.status()["advertised"] or not Path(text).is_file():
        return text
    return read_public_facts(session, text, None, None)


@lace_command(
    "diff",
    api="Warehouse.diff",
    piped="Lines of `a`, `b` or `differs`, a tab and a record hash: what A has and B lacks, what B "
    "has and A lacks, what both have with other fields; sorted. With --only, hashes alone.",
    json_keys={
        "a": "how many records A has and B lacks",
        "b": "how many records B has and A lacks",
        "differs": "how many both have with other fields",
        "partitions": "how many two-character prefixes were read; null when all were",
    },
    examples=[
        ("lace pipeline diff big.wh mine theirs", "compare two runs of advertise"),
        ("lace pipeline diff big.wh mine peer.facts --only b", "what to request from a peer"),
    ],
)
@warehouse_argument
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--only", type=Choice(_KINDS), help="Only these, as record hashes.")
@spark_options
@click.pass_obj
def diff(
    session: Session,
    warehouse: str,
    first: str,
    second: str,
    only: str | None,
    spark: SparkArguments,
) -> int:
    """Compare two advertisement states: what each has that the other lacks.

    A and B are names given by `lace pipeline advertise`, or a file of a peer's listing:
    Advertised and AdvertisedField fact lines. Where both have one source and the same fields,
    Merkle roots are compared first, and only partitions that differ are read. Exit code 1 when
    anything differs.
    """
    opened, output = open_warehouse(warehouse), session.output
    sides = [_side(session, opened, text) for text in (first, second)]
    how = spark.options(session, "diff")
    if output.json:
        counts, read = opened.count_differences(*sides, **how)
        output.json_document({**counts, "partitions": read})
        return int(any(counts.values()))
    rows: Iterable[tuple[str, str]] = opened.diff(*sides, only=only, **how)
    if output.table_wanted and only is None:
        found = list(rows)
        if found:
            output.table((TableColumn("in"), TableColumn("record", no_wrap=True)), found)
        return int(bool(found))
    code = 0
    for kind, record in rows:
        output.row((record,) if only else (kind, record))
        code = 1
    return code


# -- `lace pipeline export`: record bytes out of a warehouse.


def _choose(
    session: Session,
    warehouse: Warehouse,
    argument: str,
    predicate: str | None,
    allow_undefined: Sequence[str],
    spark: SparkArguments,
) -> frozenset[str]:
    """Return the records that rules choose; values that are no record here are counted."""
    file = read_file(session, argument)
    rules = read_rules(session, file)
    note_without_facts(session, warehouse)
    try:
        found = warehouse.choose(
            rules,
            predicate=predicate or SELECTED,
            allow_undefined=allow_undefined,
            **spark.options(session, "export"),
        )
    except RuleError as error:
        raise refusing(session, file, error) from error
    except UsageError as error:
        if predicate is None and "no rule defines" in error.message:
            error.hint = "name the predicate that chooses records, as in --predicate Chosen/1"
        raise
    if found.strangers:
        are = "is no record" if found.strangers == 1 else "are no records"
        count = plural(found.strangers, "value")
        session.output.note(f"{count} of {predicate or SELECTED} {are} of this warehouse")
    return found.hashes


@lace_command(
    "export",
    api="Warehouse.export",
    piped="The bytes of the records, one after another; nothing with -o.",
    json_keys={
        "id": "the record's hash; one line a record; wants -o",
        "offset": "where it begins in the file",
        "bytes": "how many bytes it has",
    },
    examples=[
        ("lace pipeline export big.wh --all -o all.records", "write every record to a file"),
        ("lace pipeline export big.wh //u//notes//today | lace import -", "copy one to a lace"),
        ("lace pipeline export big.wh --rules chosen.lace -o chosen.records", "what rules choose"),
    ],
)
@warehouse_argument
@click.argument("records", metavar="[RECORD]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every record.")
@click.option("--rules", metavar="FILE", help="The records that the rules of FILE choose.")
@click.option(
    "--predicate",
    metavar="NAME/1",
    help=f"With --rules, the predicate that chooses.  [default: {SELECTED}]",
)
@ALLOW_UNDEFINED_OPTION
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, whole or not.")
@spark_options
@click.pass_obj
def export(
    session: Session,
    warehouse: str,
    records: tuple[str, ...],
    everything: bool,
    rules: str | None,
    predicate: str | None,
    allow_undefined: tuple[str, ...],
    target: str | None,
    spark: SparkArguments,
) -> int:
    """Write the bytes of records of a warehouse.

    Of the RECORDs named, of all, or of those that rules choose, in the order of the warehouse.
    Each is checked against its hash. When one that is named is not there, nothing is written
    and the exit code is 1. Only --rules needs Spark. `lace import` reads the result.
    """
    if bool(records) + everything + (rules is not None) != 1:
        raise UsageError("name what to export", hint="give RECORDs, --all, or --rules FILE")
    if predicate is not None and rules is None:
        raise UsageError("--predicate is of rules", hint="give --rules FILE")
    check_output(session.output, target)
    settings = session.settings(session.find_settings() if rules is not None else None)[0]
    opened = open_warehouse(warehouse, settings=settings)
    wanted = opened.find(*records) if records else None
    if rules is not None:
        wanted = _choose(session, opened, rules, predicate, allow_undefined, spark)
    total = opened.status()["records"] if wanted is None else len(wanted)
    found = opened.records(wanted)
    place: AbstractContextManager[IO[bytes] | None] = written(target) if target else nullcontext()
    with place as file, Progress(session, "export", total, "records") as progress:
        goal = Target(session.output, file)
        for record in found:
            goal.write(record)
            progress.update(goal.records)
    if target:
        size = plural(goal.bytes, "byte")
        session.output.note(f"wrote {plural(goal.records, 'record')}, {size}, to {target}")
    return 0


# -- `lace pipeline export-lace`: the records of a warehouse into a lace.


@lace_command(
    "export-lace",
    api="Warehouse.export_lace",
    piped="Three lines of a name and a number: stored, known (they were there already), rejected.",
    json_keys={
        "stored": "how many records are new in the lace",
        "known": "how many were there already",
        "rejected": "how many the lace does not take, by its limits",
    },
    examples=[("lace pipeline export-lace big.wh --lace small", "fill a lace that is there")],
)
@warehouse_argument
@click.pass_obj
def export_lace(session: Session, warehouse: str) -> int:
    """Store the records of a warehouse in the lace.

    The lace is the one that --lace names, or the one here. Every record is validated as an
    import does it. It needs no Spark.
    """
    opened = open_warehouse(warehouse)
    with (
        session.changing("pipeline export-lace") as change,
        Progress(session, "export-lace", opened.status()["records"], "records") as progress,
    ):

        def report(counts: Intake, errors: Sequence[RecordError]) -> None:
            for error in errors:
                session.output.complain(str(error))
            progress.update(counts.stored + counts.known + counts.rejected)

        done = opened.export_lace(change.lace, report=report)
        counts = {"stored": done.stored, "known": done.known, "rejected": done.rejected}
        change.result.update(counts)
        change.exit_code = 1 if done.rejected else 0
    session.output.counts(counts)
    return change.exit_code
