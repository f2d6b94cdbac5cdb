"""A warehouse from a program: looked at, filled, asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import lace
from lace.errors import UsageError
from lace.store.interface import NoStoreError

if TYPE_CHECKING:
    from pathlib import Path

RULES = "Named(P,N) :- Field(P,'Name',_,N)."


@pytest.mark.spark
@pytest.mark.slow
def test_a_warehouse(spark: Any, file: Path, tmp_path: Path) -> None:
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    assert warehouse.status()["records"] == 0
    assert warehouse.tables == ()
    done = warehouse.ingest(file, spark=spark)
    assert done.stored > 0
    assert warehouse.ingest(file, spark=None).skipped == 1, "for that, no Spark is started"
    assert repr(warehouse).endswith(f"{done.stored} records>")
    facts = warehouse.make_facts(spark=spark)
    assert facts.records == done.stored
    assert warehouse.make_facts().records == 0
    answer = warehouse.evaluate(RULES, name="names", spark=spark)
    (rows,) = answer.counts.values()
    table = warehouse.to_arrow("derived/names/Named~2")
    assert table.num_rows == rows > 0
    assert not warehouse.evaluate(RULES, name="names").fresh
    again = lace.open_warehouse(warehouse.path)
    assert again.tables == warehouse.tables
    whole = again.to_arrow("records")
    assert whole.num_rows == done.stored
    first = whole.column_names[0]
    assert again.to_arrow("records", [first]).equals(whole.select([first]))
    with pytest.raises(UsageError, match="records has no column 'colour'"):
        again.to_arrow("records", ["colour"])
    assert again.status() == warehouse.status()


def test_what_a_warehouse_refuses(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError):
        lace.open_warehouse(tmp_path / "none")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UsageError):
        lace.open_warehouse(tmp_path / "mine", create=True)
    warehouse = lace.open_warehouse(tmp_path / "wh", create=True)
    with pytest.raises(UsageError, match="there is no table 'records'"):
        warehouse.to_arrow("records")
    with pytest.raises(lace.RuleError):
        warehouse.evaluate("A(P) :- Have(Q).")
    with pytest.raises(UsageError):
        lace.open_warehouse(tmp_path / "wh", settings={"colour": 1})


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with lace.open(tmp_path / "x") as store, pytest.raises(lace.EngineError, match="pyarrow"):
        store.records().to_arrow()
