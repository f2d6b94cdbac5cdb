"""Hypothesis strategies for records, their parts and streams of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from lace.base.tai import Tai
from lace.base.text import is_nfc, normalize_nfc
from lace.record.headers import RESERVED_NAMES, Header
from lace.record.ids import RecordId, record_id
from lace.record.model import MARKER, Blob, Plex, Record, Seal
from lace.record.seal import SigningKey

# A few keys are enough: deriving one costs more than signing with it.
KEYS = [SigningKey(bytes([number]) * 32, lambda size: b"\x5a" * size) for number in (1, 2, 3)]

# Every character that a header may hold; C1 controls and separators are among them.
CHARACTERS = st.characters(
    min_codepoint=0x20, exclude_characters="\x7f", exclude_categories=["Cs"]
) | st.sampled_from("aZ0+-.~ é\u0301\u0338\u1e69\u200e\u2028\u0085\U0001f5a7\U00010348가ᄀ")


def nfc_text(min_size: int = 1, max_size: int = 12) -> st.SearchStrategy[str]:
    return st.text(CHARACTERS, min_size=min_size, max_size=max_size).map(normalize_nfc)


def is_name(text: str) -> bool:
    return bool(text) and ":" not in text and " " not in text and text not in RESERVED_NAMES


names = (
    st.sampled_from(["A", "B", "a", "+Link", "ref+Link", "~", "é", "\U0001f5a7x", "\U00010348"])
    | nfc_text(max_size=6).filter(is_name)
).filter(is_nfc)
values = nfc_text(max_size=30).filter(lambda text: not text.startswith(" "))


@st.composite
def targets(draw: st.DrawFn) -> str:
    """Record-link targets, good ones and ones that are nearly good."""
    identifier = draw(record_ids())
    return draw(
        st.sampled_from(
            [
                identifier,
                "V" + identifier[1:],
                identifier[:-2] + "H9",
                identifier[:44] + "z.H3",
                "X.y.Z",
                "X.y.",
                "x.y.Z",
                "P.~.h3",
                "P..H4",
                "no-target",
            ]
        )
    )


def record_ids() -> st.SearchStrategy[RecordId]:
    digests = st.binary(min_size=32, max_size=32)
    return st.builds(record_id, st.sampled_from("BPS"), digests)


links = st.tuples(
    st.sampled_from(["+Link", "evidence+Link", "+Linked", "x+Link"]),
    st.builds("{} {}".format, st.sampled_from(["seen", "two words", "ends in space "]), targets())
    | targets(),
)
headers: st.SearchStrategy[Header] = st.tuples(names, values) | links

segments = nfc_text(max_size=8).filter(
    lambda text: not set(text) & set("/|{}#") and text not in ("", ".", "..")
)
paths = (
    st.lists(segments, min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda text: not text.startswith(" ") and is_nfc(text))
)

tais = st.integers(0, 10**19 - 1).map(Tai.from_nanoseconds)

plain_data = st.binary(max_size=120)
clean_data = plain_data.map(lambda data: data.replace(b"\n", b".").replace(MARKER[:1], b"-"))
"""Data without LF and without marker bytes."""


@st.composite
def tricky_data(draw: st.DrawFn) -> bytes:
    """Data with markers, marklines and whole records in it."""
    inner = Blob(draw(plain_data)).bytes
    whole = Plex(group="g", app="a", name="n", tai="0000000000:000000000", data=inner).bytes
    pieces = st.sampled_from([MARKER, MARKER[:4], b"\n", b"\n" + MARKER, inner, whole, whole[:70]])
    return b"".join(draw(st.lists(pieces | st.binary(max_size=10), max_size=5)))


data = plain_data | tricky_data()


def blobs(contents: st.SearchStrategy[bytes] = data) -> st.SearchStrategy[Blob]:
    return st.builds(Blob, contents)


def plexes(contents: st.SearchStrategy[bytes] = data) -> st.SearchStrategy[Plex]:
    return st.builds(
        Plex,
        group=paths,
        app=paths,
        name=paths,
        tai=tais,
        headers=st.lists(headers, max_size=5),
        data=contents,
    )


def seals(contents: st.SearchStrategy[bytes] = data) -> st.SearchStrategy[Seal]:
    return st.builds(Plex.seal, plexes(contents), st.sampled_from(KEYS))


def records(contents: st.SearchStrategy[bytes] = data) -> st.SearchStrategy[Record]:
    return st.one_of(blobs(contents), plexes(contents), seals(contents))


def cut_at(raw: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces, cut at the places."""
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


cuts = st.lists(st.integers(0, 1 << 16), max_size=12)


@st.composite
def mutations(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with one flipped, inserted, deleted, doubled or cut off."""
    at = draw(st.integers(0, len(raw) - 1))
    byte = draw(st.binary(min_size=1, max_size=1))
    kinds = [
        raw[:at] + bytes([raw[at] ^ (byte[0] or 1)]) + raw[at + 1 :],
        raw[:at] + byte + raw[at:],
        raw[:at] + raw[at + 1 :],
        raw[:at],
        raw[:at] + raw[at : at + 9] + raw[at:],
        raw + byte,
    ]
    return draw(st.sampled_from(kinds))
