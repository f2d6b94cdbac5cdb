"""Schnorr signatures, one by one and in batches, against BIP-340's vectors and a plain oracle.

The oracle writes the curve out in affine coordinates with Python integers. It shares nothing with
the code under test, which leaves all points to libsecp256k1.
"""

import csv
import hashlib
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from coincurve._libsecp256k1 import ffi  # type: ignore[import-not-found]  # untyped C
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lace.record import schnorr_batch
from lace.record.schnorr import FIELD_PRIME, GROUP_ORDER, Tag, keypair, sign, verify
from lace.record.schnorr_batch import verify_many

Point = tuple[int, int] | None
Item = tuple[bytes, bytes, bytes]

VECTORS = Path(__file__).parents[2] / "vectors" / "bip340.csv"
RANDOMNESS = bytes(range(32))
GENERATOR: Point = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)


def bip340(name: str, message: bytes) -> bytes:
    prefix = hashlib.sha256(f"BIP0340/{name}".encode()).digest()
    return hashlib.sha256(prefix + prefix + message).digest()


def constant(number: int) -> Tag:
    """A hash that always gives one number, so that signatures can be solved for."""
    return lambda _name, _message: number.to_bytes(32)


# --- the oracle -----------------------------------------------------------------------------------


def add(a: Point, b: Point) -> Point:
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0] and a[1] != b[1]:
        return None
    if a == b:
        slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, FIELD_PRIME)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, FIELD_PRIME)
    x = (slope * slope - a[0] - b[0]) % FIELD_PRIME
    return x, (slope * (a[0] - x) - a[1]) % FIELD_PRIME


@cache
def times(scalar: int, point: Point) -> Point:
    total: Point = None
    for bit in bin(scalar % GROUP_ORDER)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def lift(x: int) -> Point:
    square = (pow(x, 3, FIELD_PRIME) + 7) % FIELD_PRIME
    y = pow(square, (FIELD_PRIME + 1) // 4, FIELD_PRIME)
    if x >= FIELD_PRIME or y * y % FIELD_PRIME != square:
        return None
    return x, y if y % 2 == 0 else FIELD_PRIME - y


def oracle(public_key: bytes, message: bytes, signature: bytes, tag: Tag) -> bool:
    if len(public_key) != 32 or len(message) != 32 or len(signature) != 64:
        return False
    point = lift(int.from_bytes(public_key))
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    if point is None or r >= FIELD_PRIME or s >= GROUP_ORDER:
        return False
    e = int.from_bytes(tag("challenge", signature[:32] + public_key + message)) % GROUP_ORDER
    found = add(times(s, GENERATOR), times(GROUP_ORDER - e, point))
    return found is not None and found[1] % 2 == 0 and found[0] == r


# --- making items ---------------------------------------------------------------------------------


@cache
def signer(number: int) -> tuple[bytes, bytes]:
    return keypair(bip340("test signer", number.to_bytes(4)))


def signed(number: int, signers: int) -> Item:
    d, public_key = signer(number % signers)
    message = bip340("test message", number.to_bytes(4))
    return public_key, message, sign(d, public_key, message, bytes(32), bip340)


@cache
def good_items(count: int, signers: int) -> tuple[Item, ...]:
    return tuple(signed(number, signers) for number in range(count))


def shifted(item: Item, delta: int) -> Item:
    """The item with its scalar moved by delta."""
    public_key, message, signature = item
    s = (int.from_bytes(signature[32:]) + delta) % GROUP_ORDER
    return public_key, message, signature[:32] + s.to_bytes(32)


def solved(x: int, s: int, e: int) -> Item:
    """A signature good for a constant challenge e, if s*G - e*P has even y."""
    found = add(times(s, GENERATOR), times(GROUP_ORDER - e, lift(x)))
    assert found is not None
    return x.to_bytes(32), bytes(32), found[0].to_bytes(32) + s.to_bytes(32)


def check_both(items: list[Item], tag: Tag, expected: list[bool] | None = None) -> list[bool]:
    """Single and forced batch checks must agree with each other and with what is expected."""
    single = [verify(*item, tag) for item in items]
    assert verify_many(items, tag, RANDOMNESS) == single
    assert schnorr_batch._verify_batch(items, tag, RANDOMNESS) == single
    if expected is not None:
        assert single == expected
    return single


@pytest.fixture
def always_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even the smallest lists be checked by the batch equation."""
    monkeypatch.setattr(schnorr_batch, "_batch_pays", lambda items, signers: True)


# --- published vectors ----------------------------------------------------------------------------


def rows() -> list[dict[str, str]]:
    with VECTORS.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if len(row["message"]) == 64]


def as_item(row: dict[str, str]) -> Item:
    return (
        bytes.fromhex(row["public key"]),
        bytes.fromhex(row["message"]),
        bytes.fromhex(row["signature"]),
    )


def test_the_vectors_are_the_published_ones() -> None:
    assert [int(row["index"]) for row in rows()] == list(range(15))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['index']} {row['comment']}".strip())
def test_published_vector(row: dict[str, str]) -> None:
    public_key, message, signature = as_item(row)
    good = row["verification result"] == "TRUE"
    assert verify(public_key, message, signature, bip340) is good
    assert oracle(public_key, message, signature, bip340) is good
    if row["secret key"]:
        d, derived = keypair(bytes.fromhex(row["secret key"]))
        assert derived == public_key
        aux = bytes.fromhex(row["aux_rand"])
        assert sign(d, public_key, message, aux, bip340) == signature


@pytest.mark.usefixtures("always_batch")
def test_published_vectors_as_one_batch() -> None:
    expected = [row["verification result"] == "TRUE" for row in rows()]
    check_both([as_item(row) for row in rows()], bip340, expected)


# --- keys and signing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret",
    [bytes(32), GROUP_ORDER.to_bytes(32), b"\xff" * 32, b"", bytes(31), b"\x01" * 33],
)
def test_keypair_refuses_what_is_no_scalar(secret: bytes) -> None:
    with pytest.raises(ValueError, match="secret"):
        keypair(secret)


@given(st.integers(1, GROUP_ORDER - 1))
@settings(max_examples=20, deadline=None)
def test_keypair_and_its_negative_agree_on_the_even_scalar(number: int) -> None:
    d, public_key = keypair(number.to_bytes(32))
    assert keypair((GROUP_ORDER - number).to_bytes(32)) == (d, public_key)
    point = times(int.from_bytes(d), GENERATOR)
    assert point == lift(int.from_bytes(public_key))


def test_sign_refuses_wrong_lengths_and_scalars() -> None:
    d, public_key = signer(0)
    for arguments in (
        (d, public_key[1:], bytes(32), bytes(32)),
        (d, public_key, bytes(31), bytes(32)),
        (d, public_key, bytes(32), bytes(33)),
        (bytes(32), public_key, bytes(32), bytes(32)),
    ):
        with pytest.raises(ValueError, match="must be 32 bytes"):
            sign(*arguments, bip340)


@pytest.mark.parametrize("number", [0, GROUP_ORDER])
def test_sign_refuses_the_nonce_zero(number: int) -> None:
    with pytest.raises(ValueError, match="nonce is zero"):
        sign(*signer(0), bytes(32), bytes(32), constant(number))


# --- single checks --------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=70))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_answered(public_key: bytes, message: bytes, signature: bytes) -> None:
    assert verify(public_key, message, signature, bip340) is False
    assert verify_many([(public_key, message, signature)], bip340, RANDOMNESS) == [False]


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b""])
def test_wrong_lengths_are_false(part: int, change: Callable[[bytes], bytes]) -> None:
    item = list(signed(0, 1))
    item[part] = change(item[part])
    assert verify(item[0], item[1], item[2], bip340) is False


@given(st.integers(0, 2**32), st.integers(0, 127), st.integers(1, 255))
@settings(max_examples=25, deadline=None)
def test_one_changed_byte_answers_as_the_oracle(number: int, place: int, flip: int) -> None:
    d, public_key = signer(number % 5)
    message = number.to_bytes(32)
    whole = bytearray(public_key + message + sign(d, public_key, message, bytes(32), bip340))
    assert oracle(public_key, message, bytes(whole[64:]), bip340)
    assert verify(public_key, message, bytes(whole[64:]), bip340)
    whole[place] ^= flip
    changed = (bytes(whole[:32]), bytes(whole[32:64]), bytes(whole[64:]))
    assert verify(*changed, bip340) is oracle(*changed, bip340) is False


def key_candidates() -> list[int]:
    """Points of every kind that recovery treats apart: x below n, equal to n, and above n."""
    above = [x for x in range(GROUP_ORDER + 1, GROUP_ORDER + 40) if lift(x) is not None]
    # The group order happens to be the x of a point: whoever likes can claim that public key.
    assert lift(GROUP_ORDER) is not None
    return [int.from_bytes(signer(0)[1]), 1, GROUP_ORDER, *above[:4]]


@pytest.mark.usefixtures("always_batch")
@pytest.mark.parametrize("e", [0, 1, 2, GROUP_ORDER - 1, GROUP_ORDER, GROUP_ORDER + 1, 2**255])
def test_solved_signatures_for_rare_keys_scalars_and_challenges(e: int) -> None:
    tag = constant(e)
    scalars = [0, 1, 2, 3, 5, 7, GROUP_ORDER - 1, GROUP_ORDER - 2, 2**200]
    items = [
        solved(x, s, e % GROUP_ORDER)
        for x in key_candidates()
        for s in scalars
        if add(times(s, GENERATOR), times(GROUP_ORDER - e % GROUP_ORDER, lift(x))) is not None
    ]
    expected = [oracle(*item, tag) for item in items]
    assert True in expected
    assert False in expected
    check_both(items, tag, expected)
    # The good ones alone, so that the batch equation itself is what accepts them.
    check_both([item for item, good in zip(items, expected, strict=True) if good], tag)


@pytest.mark.usefixtures("always_batch")
@pytest.mark.parametrize("e", [0, 1])
def test_a_difference_at_infinity_is_false(e: int) -> None:
    generator_x = keypair((1).to_bytes(32))[1]
    # The generator's y is even, so s = e makes s*G - e*P vanish for the key P = G.
    for r in (bytes(32), generator_x, b"\xff" * 32):
        item = (generator_x, bytes(32), r + e.to_bytes(32))
        assert oracle(*item, constant(e)) is False
        check_both([item] * 3, constant(e), [False] * 3)


@pytest.mark.usefixtures("always_batch")
@pytest.mark.parametrize("e", [0, 1, 12345])
def test_keys_and_nonces_off_the_curve_are_false(e: int) -> None:
    good = solved(int.from_bytes(signer(0)[1]), 3, e)
    off = next(x for x in range(2, 99) if lift(x) is None).to_bytes(32)
    for bad in (off, bytes(32), FIELD_PRIME.to_bytes(32), (FIELD_PRIME + 1).to_bytes(32)):
        assert verify(bad, good[1], good[2], constant(e)) is False
        items = [(bad, good[1], good[2]), (good[0], good[1], bad + good[2][32:])]
        check_both(items, constant(e), [False, False])


@pytest.mark.usefixtures("always_batch")
def test_unreduced_numbers_are_false() -> None:
    e = 1
    # The first key takes the way by recovery, the second the plain way.
    for x in (int.from_bytes(signer(0)[1]), GROUP_ORDER):
        solutions = [solved(x, s, e) for s in range(1, 12)]
        good = [item for item in solutions if verify(*item, constant(e))]
        assert good
        for public_key, message, signature in good:
            s = int.from_bytes(signature[32:]) + GROUP_ORDER
            unreduced = signature[:32] + s.to_bytes(32)
            check_both([(public_key, message, unreduced)], constant(e), [False])
    # An x plus p still fits 32 bytes when x is small: the same point, written badly.
    small = next(x for x in range(1, 99) if lift(x) is not None)
    tall = (small + FIELD_PRIME).to_bytes(32)
    check_both([(signer(0)[1], bytes(32), tall + bytes(32))], constant(e), [False])
    # With s = 0 and e = -1 the point R is the key's own, here one of small x.
    tag = constant(GROUP_ORDER - 1)
    short = small.to_bytes(32)
    check_both([(short, bytes(32), short + bytes(32))], tag, [True])
    check_both([(short, bytes(32), tall + bytes(32))], tag, [False])
    check_both([(tall, bytes(32), short + bytes(32))], tag, [False])


# --- batches --------------------------------------------------------------------------------------


def test_randomness_must_be_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        verify_many([], bip340, bytes(31))


def test_no_items_no_verdicts() -> None:
    assert verify_many([], bip340, RANDOMNESS) == []


@pytest.mark.usefixtures("always_batch")
def test_a_batch_of_nothing_but_malformed_items() -> None:
    items = [(b"", b"", b""), (bytes(32), bytes(32), bytes(64)), (b"\xff" * 32,) * 2 + (b"",)]
    check_both(items, bip340, [False] * 3)


def test_batch_and_single_agree_on_random_mixes() -> None:
    chance = random.Random(340)
    for count, signers in ((150, 1), (150, 7), (200, 100), (700, 500)):
        items = list(good_items(count, signers))
        expected = [True] * count
        for place in chance.sample(range(count), chance.choice((0, 1, 2, 20))):
            public_key, message, signature = items[place]
            expected[place] = False
            items[place] = chance.choice(
                (
                    shifted(items[place], 1),
                    (public_key, bytes(b ^ 255 for b in message), signature),
                    (public_key, message, signature[:-1]),
                    (public_key, message, signature[:32] + b"\xff" * 32),
                    (public_key, message, b"\xff" * 32 + signature[32:]),
                    (signature[:32], message, signature),
                )
            )
        check_both(items, bip340, expected)


@pytest.mark.usefixtures("always_batch")
@given(st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=40), st.binary(min_size=32))
@settings(max_examples=25, deadline=None)
def test_repeated_items_good_and_bad(choices: list[tuple[int, bool]], seed: bytes) -> None:
    items = [shifted(signed(i, 3), 0 if good else 1) for i, good in choices]
    assert verify_many(items, bip340, seed[:32]) == [good for _, good in choices]


def test_one_item_many_times() -> None:
    good, bad = signed(0, 1), shifted(signed(0, 1), 1)
    check_both([good] * 200, bip340, [True] * 200)
    check_both([bad] * 200, bip340, [False] * 200)


@pytest.mark.usefixtures("always_batch")
def test_one_nonce_point_under_many_signers() -> None:
    # All nonces equal, all points equal: every addition within a digit's sum is a doubling.
    d, public_key = signer(0)
    nonce, r = signer(1)
    items = []
    for number in range(60):
        message = number.to_bytes(32)
        e = int.from_bytes(bip340("challenge", r + public_key + message))
        s = (int.from_bytes(nonce) + e * int.from_bytes(d)) % GROUP_ORDER
        items.append((public_key, message, r + s.to_bytes(32)))
    check_both(items, bip340, [True] * 60)
    items[41] = shifted(items[41], 5)
    check_both(items, bip340, [i != 41 for i in range(60)])


@pytest.mark.parametrize("delta", [1, 2**128, GROUP_ORDER - 3])
def test_errors_that_cancel_without_coefficients_are_found(delta: int) -> None:
    items = list(good_items(150, 7))
    items[10], items[90] = shifted(items[10], delta), shifted(items[90], -delta)
    check_both(items, bip340, [i not in (10, 90) for i in range(150)])


def test_cancelling_errors_would_pass_without_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof that the test above tests the coefficients: equal ones let the forgery pass."""

    def ones(items: list[Item], _randomness: bytes) -> NDArray[np.uint8]:
        drawn = np.zeros((len(items), 16), np.uint8)
        drawn[:, 0] = 1
        return drawn

    items = list(good_items(150, 7))
    items[10], items[90] = shifted(items[10], 1), shifted(items[90], -1)
    monkeypatch.setattr(schnorr_batch, "_coefficients", ones)
    assert verify_many(items, bip340, RANDOMNESS) == [True] * 150


def test_coefficients_depend_on_randomness_and_on_every_item() -> None:
    draw = schnorr_batch._coefficients
    items = list(good_items(150, 7))
    drawn = draw(items, RANDOMNESS)
    assert drawn.shape == (150, 16)
    assert len({row.tobytes() for row in drawn}) == 150
    assert not (draw(items, bytes(32)) == drawn).all(axis=1).any()
    items[149] = shifted(items[149], 1)
    assert not (draw(items, RANDOMNESS) == drawn).all(axis=1).any()


@pytest.mark.parametrize("place", [0, 300, 511, 512, 599])
def test_one_forged_of_600_is_found(place: int) -> None:
    items = list(good_items(600, 20))
    items[place] = shifted(items[place], 1)
    assert verify_many(items, bip340, RANDOMNESS) == [i != place for i in range(600)]


def test_a_good_batch_makes_no_single_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> bool:
        raise AssertionError("a single check")

    monkeypatch.setattr(schnorr_batch, "verify", refuse)
    assert verify_many(good_items(600, 20), bip340, RANDOMNESS) == [True] * 600
    assert verify_many(good_items(700, 500), bip340, RANDOMNESS) == [True] * 700


@pytest.mark.slow
def test_one_forged_of_8000_and_a_second_batch() -> None:
    items = list(good_items(600, 20)) * 14
    items[5000] = shifted(items[5000], 1)
    assert verify_many(items[:8000], bip340, RANDOMNESS) == [i != 5000 for i in range(8000)]
    assert verify_many(items, bip340, RANDOMNESS) == [i != 5000 for i in range(8400)]


# --- sums of multiples, where partial sums vanish -------------------------------------------------


def vanishing_sum(points: list[Point], scalars: list[int]) -> bool:
    """Whether the sum of multiples by 128-bit scalars is infinity, by the code under test."""
    array = ffi.new("secp256k1_pubkey []", len(points))
    for place, point in enumerate(points):
        assert point is not None
        compressed = bytes([2 + point[1] % 2]) + point[0].to_bytes(32)
        assert schnorr_batch._parse(array + place, compressed)
    raw = b"".join(scalar.to_bytes(16, "little") for scalar in scalars)
    columns = np.frombuffer(raw, np.uint8).reshape(-1, 16)
    storage: list[object] = [array]
    addresses = schnorr_batch._addresses(array, len(points))
    sums = schnorr_batch._bit_sums(addresses, columns, storage)
    return schnorr_batch._weigh(sums, storage) is None


def opposite(point: Point) -> Point:
    assert point is not None
    return point[0], FIELD_PRIME - point[1]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2**128 - 1)), max_size=12), st.data())
@settings(max_examples=30, deadline=None)
def test_opposite_points_vanish_wherever_they_meet(
    terms: list[tuple[int, int]], data: st.DataObject
) -> None:
    points = [times(multiple, GENERATOR) for multiple, _ in terms]
    scalars = [scalar for _, scalar in terms]
    order = data.draw(st.permutations(range(2 * len(terms))))
    both, twice = [*points, *map(opposite, points)], scalars * 2
    assert vanishing_sum([both[i] for i in order], [twice[i] for i in order])
    # One multiple of a single point more, and nothing vanishes.
    extra = data.draw(st.integers(1, 2**128 - 1))
    assert not vanishing_sum([*both, GENERATOR], [*twice, extra])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2**127 - 1)), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_sums_that_vanish_only_at_the_end(terms: list[tuple[int, int]]) -> None:
    # The points are small multiples of G, so the sum is a number below 2**136 to be made up for:
    # by a multiple of -G and one of -(2**64)*G.
    points = [times(multiple, GENERATOR) for multiple, _ in terms]
    scalars = [scalar for _, scalar in terms]
    high, low = divmod(sum(multiple * scalar for multiple, scalar in terms), 2**64)
    balance = [opposite(GENERATOR), opposite(times(2**64, GENERATOR))]
    assert vanishing_sum(points + balance, [*scalars, low, high])
    assert not vanishing_sum(points + balance, [*scalars, low + 1, high])


@pytest.mark.usefixtures("always_batch")
def test_nonce_points_adding_up_to_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three good signatures with R1 + R2 + R3 = 0 and equal coefficients: the sum of R vanishes."""
    d, public_key = signer(0)
    chance = random.Random(9)
    while True:
        nonces = [chance.randrange(1, GROUP_ORDER) for _ in range(2)]
        nonces.append(-sum(nonces) % GROUP_ORDER)
        points = [times(nonce, GENERATOR) for nonce in nonces]
        if all(point is not None and point[1] % 2 == 0 for point in points):
            break
    items = []
    for nonce in nonces:
        r = keypair(nonce.to_bytes(32))[1]
        e = int.from_bytes(bip340("challenge", r + public_key + bytes(32)))
        s = (nonce + e * int.from_bytes(d)) % GROUP_ORDER
        items.append((public_key, bytes(32), r + s.to_bytes(32)))
    for value in (1, 255, 1 << 127, (1 << 128) - 1):
        row = np.frombuffer(value.to_bytes(16, "little"), np.uint8)
        drawn = np.tile(row, (3, 1))
        monkeypatch.setattr(schnorr_batch, "_coefficients", lambda *_, drawn=drawn: drawn)
        check_both(items, bip340, [True] * 3)
        check_both([items[0], shifted(items[1], 1), items[2]], bip340, [True, False, True])


@pytest.mark.usefixtures("always_batch")
@pytest.mark.parametrize("windows", [False, True])
def test_keys_multiplied_or_in_windows_give_the_same(
    monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    monkeypatch.setattr(schnorr_batch, "_windows_pay", lambda items, signers: windows)
    for count, signers in ((1, 1), (2, 2), (30, 5), (120, 120)):
        items = list(good_items(count, signers))
        assert verify_many(items, bip340, RANDOMNESS) == [True] * count
        items[-1] = shifted(items[-1], 1)
        assert verify_many(items, bip340, RANDOMNESS) == [True] * (count - 1) + [False]
    # Challenges of zero leave the keys out of the sum altogether.
    nothing = [solved(int.from_bytes(signer(i)[1]), s, 0) for i, s in enumerate((1, 2, 3, 4, 5))]
    check_both(nothing, constant(0), [oracle(*item, constant(0)) for item in nothing])


@pytest.mark.parametrize("width", range(2, 10))
def test_every_window_width_gives_the_same(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(schnorr_batch, "_window_width", lambda count: width)
    items = list(good_items(150, 7))
    check_both(items, bip340, [True] * 150)
    items[3] = shifted(items[3], 1 << 100)
    check_both(items, bip340, [i != 3 for i in range(150)])


def test_the_single_check_does_not_need_numpy() -> None:
    program = "import lace.record.schnorr, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
