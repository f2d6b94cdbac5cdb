"""A seeded corpus of Seals: the same bytes on every machine, kept in build/bench.

Records are signed by 20 keys and have about 600 bytes: a name, a time, two extra
headers and 100 to 250 bytes of data.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from lace.record.model import blob_payload, plex_payload, seal_payload, write_record
from lace.record.seal import SigningKey

__all__ = ["corpus"]

FOLDER = Path("build") / "bench"
SIGNERS = 20
PART_RECORDS = 50_000
VERSION = 1


def _part(path: Path, first: int, count: int) -> None:
    random_source = random.Random(f"lace corpus {VERSION} {first}")
    keys_source = random.Random(f"lace keys {VERSION}")
    keys = [SigningKey(keys_source.randbytes(32), os.urandom) for _ in range(SIGNERS)]
    with path.open("wb") as file:
        for number in range(first, first + count):
            key = keys[random_source.randrange(SIGNERS)]
            data = random_source.randbytes(random_source.randrange(100, 250))
            _blob_id, blob = write_record("B", blob_payload(data))
            headers = (("Seq", str(number % 1000)), ("Tag", f"tag-{number % 7}"))
            name = f"links/{number % 10}/{random_source.randrange(10**9)}"
            tai = f"{1_700_000_000 + number:010d}:{number % 1000:09d}"
            plex_id, plex = write_record("P", plex_payload("u", "ding", name, tai, headers, blob))
            signature = key.sign(plex_id.digest, random_source.randbytes(32))
            file.write(write_record("S", seal_payload(key.verifier, signature, plex))[1])


def _start_part(path: Path, first: int, count: int) -> subprocess.Popen[bytes]:
    arguments = [str(path), str(first), str(count)]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.corpus", *arguments])


def corpus(records: int) -> Path:
    """Return the file that holds that many Seals; made when it is not there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"seals-{VERSION}-{records}.lace"
    if path.exists():
        return path
    firsts = range(0, records, PART_RECORDS)
    parts = [path.with_suffix(f".{first}") for first in firsts]
    print(f"making a corpus of {records:,} Seals …", file=sys.stderr)
    waiting = list(zip(firsts, parts, strict=True))
    while waiting:
        now, waiting = waiting[: os.cpu_count() or 1], waiting[os.cpu_count() or 1 :]
        running = [
            _start_part(part, first, min(PART_RECORDS, records - first)) for first, part in now
        ]
        for process in running:
            if process.wait() != 0:
                raise RuntimeError("making the corpus failed")
    scratch = path.with_suffix(".scratch")
    with scratch.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
            part.unlink()
    return scratch.replace(path)


if __name__ == "__main__":
    _part(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
