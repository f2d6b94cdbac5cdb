"""Memory while records move: threads of a Lace command take it from one place."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from lace.link.resources import keep_one_arena

if sys.argv[1] == "one":
    keep_one_arena()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
gate = threading.Barrier(5)

def take():
    assert library.malloc(ctypes.c_size_t(50_000))
    gate.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for each in threads:
    each.start()
gate.wait()
library.malloc_info(0, ctypes.c_void_p.in_dll(library, "stdout"))
library.fflush(None)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_info"), reason="only the C library of GNU has arenas"
)
@pytest.mark.parametrize("how", ["one", "several"])
def test_threads_share_one_arena(how: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60
    )
    arenas = run.stdout.count("<heap nr=")
    assert arenas == 1 if how == "one" else arenas > 1
