"""`lace pipeline verify`: every file of a warehouse, and what its tables say of its records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lace.base.text import safe_text
from lace.cli.command import command as lace_command
from lace.cli.output import plural
from lace.cli.pipeline_session import (
    SparkOptions,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.progress import Progress
from lace.errors import UsageError
from lace.spark.pipeline.audit import MOST_SAMPLED

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.spark.pipeline.audit import Checked, Proof
    from lace.spark.pipeline.warehouse import Warehouse

__all__ = ["command"]

_DAMAGED = 6


@lace_command(
    "verify",
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
    type=click.IntRange(1, MOST_SAMPLED),
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
def command(
    session: Session,
    warehouse: str,
    sample: int | None,
    everything: bool,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
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
    if sample is not None and everything:
        raise UsageError("--sample and --all exclude each other", hint="give one of them")
    options = SparkOptions(master, python_env, spark_settings)
    _check_packages(with_spark=everything or sample is not None)
    from lace.spark.pipeline.audit import check_warehouse, validate_some
    from lace.spark.pipeline.warehouse import Warehouse

    opened = Warehouse.open(Path(warehouse))
    total = sum(file.size for file in opened.manifest.all_files())
    with Progress(session, "verify", total, "bytes") as progress:
        found = check_warehouse(opened, lambda seen: progress.update(seen.bytes))
    if not found.damaged:  # else what is read now would only say so again
        if everything or sample is not None:
            found.proof = _prove(session, opened, options, sample)
        else:
            validate_some(opened, found)
    _show(session, found)
    return 0 if found.is_sound else _DAMAGED


def _check_packages(*, with_spark: bool) -> None:
    """Refuse to go on without what is needed: files are read with pyarrow alone."""
    if with_spark:
        from lace.spark.engine.session import check_installed

        check_installed()
    else:
        from lace.base.arrow import load_pyarrow

        load_pyarrow()


def _prove(
    session: Session, warehouse: Warehouse, options: SparkOptions, sample: int | None
) -> Proof:
    from lace.spark.pipeline.audit import prove

    most = session.settings(None)[0].warehouse_embedded_records
    with spark_session(session, options, "verify") as spark:
        return prove(spark, warehouse, sample, most_records=most)


def _show(session: Session, found: Checked) -> None:
    output, proof = session.output, found.proof
    counts = {"files": found.files, "bytes": found.bytes, "damaged": found.damaged}
    counts |= {"validated": found.validated, "wrong": found.wrong}
    if proof is not None:
        names = ("validated", "records", "facts", "advertisements", "roots", "derived", "wrong")
        counts |= {name: getattr(proof, name) for name in names}
    faults = proof.faults if proof is not None else []
    uncompared = proof.uncompared if proof is not None else []
    if output.json:
        damage = [{"path": path, "reason": reason} for path, reason in found.damage]
        lists = {"faults": faults, "uncompared": uncompared} if proof is not None else {}
        told = {
            name: [{"what": what, "reason": why} for what, why in each]
            for name, each in lists.items()
        }
        output.json_document({**counts, "damage": damage, **told})
    else:
        output.counts(counts)
        for what, reason in [*found.damage, *faults]:
            output.say(safe_text(f"damage: {what}: {reason}"))
        for what, reason in uncompared:
            output.say(safe_text(f"not compared: {what}: {reason}"))
    if found.damaged:
        output.complain(
            f"lace: the warehouse is damaged: {plural(found.damaged, 'file')} found; put them "
            "back from a copy, or make the warehouse again from its sources"
        )
    elif found.wrong:
        output.complain(
            f"lace: the warehouse has records that are not valid: {plural(found.wrong, 'fault')} "
            "found; make the warehouse again from its sources"
        )
    elif proof is not None and proof.wrong:
        output.complain(
            f"lace: the tables do not say what the records do: {plural(proof.wrong, 'fault')} "
            "found; make the warehouse again from its sources"
        )
