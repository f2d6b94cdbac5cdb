"""The records of a description, signed, in one file that `lace import` reads; and their facts.

A link holds the hash of an earlier record, so records are made in levels: first those
without links, then those that link to them only, and so on; each level is shared among
processes. The file has them in the order of their numbers. All is kept in build/bench.
"""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.corpus import FOLDER
from benchmarks.workload_facts import Fact, columns_of, occurrences, tai_text, text_facts
from benchmarks.workloads import (
    APPS,
    GROUPS,
    LABELS,
    NO,
    VERSION,
    Description,
    describe,
    describe_further,
    name_of,
)
from lace.record.model import blob_payload, plex_payload, seal_payload, write_record
from lace.record.seal import SigningKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = [
    "RecordFiles",
    "export_facts",
    "further_records",
    "record_facts_of",
    "records",
    "seal_ids",
]

_SHARE = 500
"""How many records a process makes at a time."""


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """Where the records are, and in the order of the records the texts that only they have."""

    description: Description
    path: Path
    texts: Path


class _Task(NamedTuple):
    """What a process needs to make a record."""

    number: int
    signer: int
    group: str
    app: str
    name: str
    named: int
    tai: str
    headers: list[tuple[str, str]]


class _Made(NamedTuple):
    """A record and what is known of it only now."""

    seal_id: str
    plex_id: str
    blob_id: str
    signature: str
    data_length: int
    octets: bytes


@cache
def signing_key(number: int) -> SigningKey:
    """Return the key of a verifier, by its number."""
    material = random.Random(f"lace verifier {VERSION} {number}").randbytes(32)
    return SigningKey(material, os.urandom)


def _make(task: _Task) -> _Made:
    source = random.Random(f"lace record {VERSION} {task.number}")
    data = b"%d %b" % (task.number, source.randbytes(source.randrange(20, 100)).hex().encode())
    blob_id, blob = write_record("B", blob_payload(data))
    name = task.name if task.named == NO else signing_key(task.named).verifier
    payload = plex_payload(task.group, task.app, name, task.tai, task.headers, blob)
    plex_id, plex = write_record("P", payload)
    key = signing_key(task.signer)
    signature = key.sign(plex_id.digest, source.randbytes(32))
    seal_id, seal = write_record("S", seal_payload(key.verifier, signature, plex))
    return _Made(str(seal_id), str(plex_id), str(blob_id), str(signature), len(data), seal)


def _make_share(tasks: list[_Task]) -> list[_Made]:
    return [_make(task) for task in tasks]


def records(count: int) -> RecordFiles:
    """Return the file of that many records; made when it is not there."""
    return _files(describe(count), f"workload-{VERSION}-{count}", list)


def further_records(before: RecordFiles, batches: int = 1) -> list[RecordFiles]:
    """Return the files of batches of records that come after those, in order."""
    made: list[RecordFiles] = []
    for batch in range(batches):
        description = describe_further(before.description, batch)
        name = f"{before.path.stem}-further-{batch}"
        made.append(_files(description, name, lambda: seal_ids(before, *made)))
    return made


def _files(description: Description, name: str, earlier: Callable[[], list[str]]) -> RecordFiles:
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = RecordFiles(description, FOLDER / f"{name}.lace", FOLDER / f"{name}.tsv")
    if not found.path.exists() or not found.texts.exists():
        _write(found, _make_all(description, earlier()))
    return found


def _write(files: RecordFiles, made: list[_Made]) -> None:
    scratch = files.path.with_suffix(".scratch")
    with scratch.open("wb") as file:
        file.writelines(each.octets for each in made)
    with files.texts.open("w", encoding="utf-8", newline="\n") as texts:
        texts.writelines("\t".join(map(str, each[:5])) + "\n" for each in made)
    scratch.replace(files.path)


def _make_all(description: Description, earlier: list[str]) -> list[_Made]:
    count, first = description.records, description.first
    tasks = _Tasks(description)
    ids = earlier + [""] * count
    made: list[_Made | None] = [None] * count
    done = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for level in _levels(description):
            shares = (level[at : at + _SHARE] for at in range(0, len(level), _SHARE))
            work = [[tasks.task(int(place), ids) for place in share] for share in shares]
            results = pool.map(_make_share, work)
            for place, each in zip(level.tolist(), chain.from_iterable(results), strict=True):
                made[place], ids[first + place] = each, each.seal_id
                done += 1
                if done % 50_000 == 0:
                    print(f"made {done:,} of {count:,} records …", file=sys.stderr)
    return [each for each in made if each is not None]


def _levels(description: Description) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Yield places of records, each level after those that it links to."""
    first = description.first
    sources = description.link_source - first
    targets = description.link_target - first
    inside = targets >= 0
    level = np.zeros(description.records, np.int64)
    while True:  # one more level each time round, until none is too low
        least = np.zeros_like(level)
        np.maximum.at(least, sources[inside], level[targets[inside]] + 1)
        if np.array_equal(least, level):
            break
        level = least
    order = np.argsort(level, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(level[order])) + 1)


class _Tasks:
    """Turns a description into what is said to the processes."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._codes = description.name_codes
        starts = np.arange(description.records + 1) + description.first
        self._link_at = np.searchsorted(description.link_source, starts)

    def task(self, place: int, ids: list[str]) -> _Task:
        found = self._description
        headers = [
            ("+Link", f"{LABELS[found.link_label[at]]} {ids[found.link_target[at]]}")
            for at in range(self._link_at[place], self._link_at[place + 1])
        ]
        headers.append(("Seq", str(found.seq[place])))
        headers += [("Tag", f"tag-{tag}") for tag in found.tags[place].tolist() if tag != NO]
        return _Task(
            found.first + place,
            int(found.signer[place]),
            GROUPS[found.group[place]],
            APPS[found.app[place]],
            name_of(int(self._codes[place])),
            int(found.named[place]),
            tai_text(int(found.tai[place])),
            headers,
        )


def _rows(files: RecordFiles) -> Iterator[list[str]]:
    with files.texts.open(encoding="utf-8") as texts:
        for line in texts:
            yield line.rstrip("\n").split("\t")


def seal_ids(*files: RecordFiles) -> list[str]:
    """Return the identifiers of the records of files, in order."""
    return [row[0] for each in files for row in _rows(each)]


def record_facts_of(files: RecordFiles, *earlier: RecordFiles) -> Iterator[Fact]:
    """Yield every record fact of the records, without looking into their bytes."""
    description = files.description
    rows = list(_rows(files))
    ids = [*seal_ids(*earlier), *(row[0] for row in rows)]
    verifiers = [str(signing_key(number).verifier) for number in range(description.verifiers)]
    yield from text_facts(columns_of(description, ids, verifiers))
    for seal, plex, blob, signature, length in rows:
        yield "Field", seal, "Data-Length", "0", length
        yield "Field", seal, "Signature", "0", signature
        yield "BlobHash", seal, blob
        yield "PlexHash", seal, plex
    sources = description.link_source
    for source, index, label, target in zip(
        sources.tolist(),
        occurrences(sources).tolist(),
        description.link_label.tolist(),
        description.link_target.tolist(),
        strict=True,
    ):
        yield "Field", ids[source], "+Link", str(index), f"{LABELS[label]} {ids[target]}"


def export_facts(facts: Iterable[Fact], folder: Path) -> Path:
    """Write facts as tab-separated values, a file for each predicate; return the folder.

    No value of a workload holds a tab or a line feed, so nothing is quoted.
    """
    if folder.exists():
        return folder
    scratch = folder.with_suffix(".scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for predicate, *values in facts:
        lines.setdefault(predicate, []).append("\t".join(values))
    for predicate, each in lines.items():
        with (scratch / f"{predicate}.tsv").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(chain.from_iterable(zip(each, repeat("\n"))))
    return scratch.rename(folder)


def read_facts(folder: Path) -> Iterator[Fact]:
    """Yield the facts that `export_facts` wrote."""
    for path in sorted(folder.glob("*.tsv")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield (path.stem, *line.rstrip("\n").split("\t"))
