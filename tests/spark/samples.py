"""Records for the pipeline's tests."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lace.base.digest import digest
from lace.record.model import Blob, Plex, Seal
from lace.rules.syntax import PredicateKey
from lace.spark.pipeline.advertise import advertise
from lace.spark.pipeline.derived import (
    Evaluated,
    answer_table,
    evaluation_table,
    write_evaluated,
)
from lace.spark.pipeline.evaluate import made_by
from lace.spark.pipeline.ingest import find_new, ingest
from lace.spark.pipeline.records import iterate_records
from lace.spark.pipeline.tables import RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lace.api import SigningKey
    from lace.spark.pipeline.advertise import Asked, Done
    from lace.spark.pipeline.ingest import Ingested
    from lace.spark.pipeline.warehouse import WarehouseFolder

__all__ = [
    "RULES",
    "SOURCE",
    "advertise_as",
    "derive",
    "hook_workers",
    "ingest_files",
    "make_records",
    "names_of",
    "records_digest",
    "rewrite",
    "run_script",
    "run_without",
    "write_rules",
]

SOURCE = "V.vISNhGb54ALSjDPjV~ESSDbZOre1F6igmKXAU9MCeV4.H3"
LIMIT = 1024 * 1024
RULES = """\
Tagged(P,T) :- Field(P,'Tag',_,T), Field(P,'App',_,'ding').
Linked(P,Q) :- RecordLink(P,_,_,_,Q).
Reach(P,Q) :- Linked(P,Q).
Reach(P,R) :- Reach(P,Q), Linked(Q,R).
Selected(P) :- Reach(P,Q), Tagged(Q,'a'), not Field(P,'Signed-By',_,_).
Selected('it\\'s no record') :- Have(_).
Here() :- Have(_).
Never(X,X) :- Have(X), X != X.
"""
_MINE = """\
SelectHave(P) :- Field(P,'App',_,'ding').
SelectAdvertised(P,S) :- Advertised(P,S).
"""
_THEIRS = """\
SelectHave(P) :- Field(P,'Tag',_,'a').
SelectAdvertised(P,S) :- AdvertisedField(P,S,'App',_,'ding').
"""
_SHOWN = """\
AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'Group',_,'u/1').
AllowQueryRecord(V,P) :- AllowQueryRecord(V,Q), RecordLink(Q,_,_,_,P).
"""


def make_records(key: SigningKey, count: int, seed: int = 1) -> list[Blob | Plex | Seal]:
    """Return records, each different, some of which hold the bytes of others as data."""
    chance = random.Random(seed)
    made: list[Blob | Plex | Seal] = [Blob(b""), Blob(b"first %d" % seed)]
    while len(made) < count:
        number = len(made)
        data = chance.choice([b"", b"%d" % number, chance.randbytes(200), made[-1].bytes])
        if number % 9 == 0:
            made.append(Blob(b"%d of %d" % (number, seed) + data))
            continue
        headers = [("Tag", chance.choice(["a", "é", "it's \\ here"])), ("Tag", "second")]
        if number % 3:
            headers.append(("+Link", f"see {chance.choice(made).id}"))
        if number % 4 == 0:
            headers.append(("+Link", "no link at all"))
        plex = Plex(
            group=f"u/{number % 5}",
            app="ding",
            name=f"{seed}/{number}",
            tai=f"17000000{number % 100:02d}:000000001",
            headers=headers,
            data=data,
        )
        made.append(plex.seal(key) if number % 5 == 0 else plex)
    return made


def write_rules(folder: Path) -> None:
    """Write rules, two selectors and what is shown, each into the file that is named so."""
    for name, text in (("rules", RULES), ("mine", _MINE), ("theirs", _THEIRS), ("shown", _SHOWN)):
        (folder / name).write_text(text)


def ingest_files(spark: Any, warehouse: WarehouseFolder, *paths: Path, **rest: Any) -> Ingested:
    """Ingest files as the command does."""
    with warehouse.writing("a test") as job:
        new = find_new(warehouse, [path.resolve() for path in paths])
        return ingest(spark, job, new, max_data_bytes=rest.pop("limit", LIMIT), **rest)


def advertise_as(spark: Any, warehouse: WarehouseFolder, asked: Asked) -> Done:
    """Advertise as the command does."""
    with warehouse.writing("a test") as job:
        return advertise(spark, job, asked)


def derive(warehouse: WarehouseFolder, name: str, sets: Mapping[str, Sequence[str]]) -> None:
    """Put derived sets into a warehouse, by predicate, as an evaluation does."""
    import pyarrow as pa
    from pyarrow import parquet

    with warehouse.writing("a test") as job:
        counts = {PredicateKey(each, 1): len(texts) for each, texts in sets.items()}
        made = write_evaluated(job, Evaluated(name, "0" * 64, counts, made_by=made_by()))
        new = warehouse.manifest.with_replaced(evaluation_table(name), made)
        for number, (key, texts) in enumerate(zip(counts, sets.values(), strict=True)):
            target = job.folder(f"derived-{number}")
            target.mkdir(parents=True)
            rows = pa.table({"c0": pa.array(texts, pa.string())})
            parquet.write_table(rows, target / "part-0.parquet", write_page_checksum=True)
            new = new.with_replaced(answer_table(name, key), job.adopt(target))
        job.commit(new)


def rewrite(warehouse: WarehouseFolder, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a table, and commit it as if it were right."""
    import pyarrow as pa
    from pyarrow import parquet

    with warehouse.writing("a test") as job:
        whole = pa.concat_tables([parquet.read_table(each) for each in warehouse.files(table)])
        target = job.folder("changed")
        target.mkdir(parents=True)
        parquet.write_table(change(whole), target / "part-0.parquet", write_page_checksum=True)
        job.commit(warehouse.manifest.with_replaced(table, job.adopt(target)))


_HIDING = """
import os, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hiding())
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name in sys.argv[1].split(",") else found(name, *rest)
from lace.cli.main import run
from lace.cli.session import Session
sys.exit(run(sys.argv[2:], Session(os.environ)))
"""


def run_script(
    script: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may die."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths, **(environ or {})},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_without(
    packages: str, *arguments: object, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that does not find some packages, named with commas."""
    return run_script(_HIDING, packages, *map(str, arguments), environ=environ)


def hook_workers(folder: Path, code: str) -> str:
    """Make Python workers of Spark run some code before all else, with `validating` imported.

    Returns the PYTHONPATH that they need for it. Nothing in Lace knows of such a hook.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "from lace.spark.pipeline import ingest as validating\n" + code
    )
    root = Path(__file__).parents[2]
    return os.pathsep.join(map(str, (folder, root / "src", root)))


def records_digest(warehouse: WarehouseFolder) -> tuple[str, int]:
    """Return a digest of the set of records, and how many there are; each is there once.

    The folder has the files that the manifest lists, and no others.
    """
    rows = [(record.hash_text, record.bytes) for record in iterate_records(warehouse)]
    assert len(rows) == len(set(rows)) == warehouse.manifest.rows(RECORDS)
    listed = {each.path.removeprefix("data/") for each in warehouse.manifest.all_files()}
    assert listed == names_of(warehouse.folder / "data")
    return digest(repr(sorted(rows)).encode()).hex(), len(rows)


def names_of(folder: Path) -> set[str]:
    """Return the paths of all files below a folder, relative to it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
