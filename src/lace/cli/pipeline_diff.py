"""`lace pipeline diff`: what two advertisement states of a warehouse, or a peer's, do not share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lace.cli.command import command as lace_command
from lace.cli.exchange_facts import read_public_facts
from lace.cli.output import Column
from lace.cli.pipeline_session import (
    SparkOptions,
    spark_options,
    spark_session,
    warehouse_argument,
)
from lace.cli.suggestions import Choice

if TYPE_CHECKING:
    from lace.cli.session import Session
    from lace.spark.pipeline.diff import Comparison, Side
    from lace.spark.pipeline.warehouse import Warehouse

__all__ = ["command"]

_KINDS = ("a", "b", "differs")


def _side(session: Session, warehouse: Warehouse, text: str) -> Side:
    from lace.spark.pipeline.advertise import state_names
    from lace.spark.pipeline.diff import listing_of, side_of

    if text not in state_names(warehouse.manifest) and Path(text).is_file():
        return listing_of(read_public_facts(session, text, None, None), text)
    return side_of(warehouse, text)


@lace_command(
    "diff",
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
def command(
    session: Session,
    warehouse: str,
    first: str,
    second: str,
    only: str | None,
    master: str,
    python_env: str | None,
    spark_settings: tuple[str, ...],
) -> int:
    """Compare two advertisement states: what each has that the other lacks.

    A and B are names given by `lace pipeline advertise`, or a file of a peer's listing:
    Advertised and AdvertisedField fact lines. Where both have one source and the same fields,
    Merkle roots are compared first, and only partitions that differ are read. Exit code 1 when
    anything differs.
    """
    from lace.spark.engine.session import check_installed

    check_installed()
    from lace.spark.pipeline.diff import Comparison
    from lace.spark.pipeline.warehouse import Warehouse

    options = SparkOptions(master, python_env, spark_settings)
    opened = Warehouse.open(Path(warehouse))
    compared = Comparison(_side(session, opened, first), _side(session, opened, second))
    if compared.is_same:  # there is nothing to start Spark for
        return _show(session, compared, None, only)
    with spark_session(session, options, "diff") as spark:
        return _show(session, compared, spark, only)


def _show(session: Session, compared: Comparison, spark: Any, only: str | None) -> int:  # noqa: ANN401 - PySpark's own
    output = session.output
    if output.json:
        counts = dict.fromkeys(_KINDS, 0) if spark is None else compared.counts(spark)
        prefixes = compared.prefixes
        read = None if prefixes is None else len(prefixes)
        output.json_document({**counts, "partitions": read})
        return int(any(counts.values()))
    rows = iter(()) if spark is None else compared.records(spark, only)
    number = 0
    if output.table_wanted and only is None:
        found = list(rows)
        if found:
            output.table((Column("in"), Column("record", no_wrap=True)), found)
        return int(bool(found))
    for kind, record in rows:
        output.row((record,) if only else (kind, record))
        number += 1
    return int(number > 0)
