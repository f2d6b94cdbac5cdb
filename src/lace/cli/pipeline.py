"""`lace pipeline`: many records at once, with Spark, over a warehouse folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lace.cli.command import LazyGroup, require_subcommand

if TYPE_CHECKING:
    from collections.abc import Mapping


_MODULES: Final[Mapping[str, str]] = {
    "ingest": "lace.cli.pipeline_stages:ingest",
    "facts": "lace.cli.pipeline_stages:facts",
    "advertise": "lace.cli.pipeline_stages:advertise",
    "diff": "lace.cli.pipeline_tables:diff",
    "evaluate": "lace.cli.pipeline_stages:evaluate",
    "run": "lace.cli.pipeline_stages:run",
    "status": "lace.cli.pipeline_tables:status",
    "verify": "lace.cli.pipeline_tables:verify",
    "export": "lace.cli.pipeline_tables:export",
    "import-lace": "lace.cli.pipeline_stages:import_lace",
    "export-lace": "lace.cli.pipeline_tables:export_lace",
}


class _Pipeline(LazyGroup):
    modules = _MODULES


@click.group(
    "pipeline",
    cls=_Pipeline,
    examples=[
        ("lace pipeline ingest big.wh backup.records", "validate a file of records"),
        ("lace pipeline facts big.wh", "make the facts of its records"),
        ("lace pipeline advertise big.wh --source V.….H3", "what a peer would be told of them"),
        ("lace pipeline evaluate big.wh --rules policy.lace", "what follows from rules"),
        ("lace pipeline run big.wh incoming --rules policy.lace", "all of it, one after another"),
        ("lace pipeline status big.wh", "what is in it"),
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Work on many records at once, with Spark.

    A WAREHOUSE is a folder of Parquet tables that any tool can read, and of one manifest that
    says which files count. Every command can be run again: what is done is not done twice, and
    a job that died leaves nothing half-done. Needs pip install 'lace[spark]'.
    """
    require_subcommand(ctx)
