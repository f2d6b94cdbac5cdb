"""Checking many Schnorr signatures at once, at about a third of the cost of one by one.

Here lives `verify_many`, which answers exactly as `lace.record.schnorr.verify` does for each item.
A signature is good when s*G = R + e*P. Many are good, but for one chance in 2**128, when

    sum(a*s) * G  =  sum(a*R)  +  sum over signers of (sum of that signer's a*e) * P

holds for random 128-bit coefficients a that no signer could foresee; without them, two forged
signatures could be made whose errors cancel. A batch that fails is searched for the bad ones.

The sums of multiples follow Pippenger: cut each scalar into windows of a few bits, add together
the points having the same window and digit, and then, for each bit, the digit sums having it.
All work is thus additions of long lists of points, which libsecp256k1 does in one call a list.

Not here: randomness. The package is pure, so the caller brings 32 fresh random bytes.
Apart from `schnorr`: this needs NumPy, which a caller that checks one signature does not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from blake3 import blake3
from coincurve import PublicKey

# The compiled module carries no types, so both names are `Any`; none of their values leaves here.
from coincurve._libsecp256k1 import ffi, lib  # type: ignore[import-not-found]
from numpy.typing import NDArray

from lace.record.schnorr import GROUP_ORDER, Tag, verify

_Item: TypeAlias = tuple[bytes, bytes, bytes]
# Points are named by the addresses of libsecp256k1's own structures, which go straight into its
# lists of pointers. `_Storage` keeps the structures alive for as long as addresses are in use.
_Addresses: TypeAlias = NDArray[np.uintp]
_Storage: TypeAlias = list[Any]

# A batch holds at most this many items: larger ones gain little and hold more memory.
_BATCH: Final = 8192
# A failed batch is checked again in parts, so that one forged signature costs few single checks.
_PART: Final = 512

# Measured costs, the unit being the addition of one more point to a long list. They only steer
# choices between ways that give the same answer.
_CALL_COST: Final = 8  # beginning a list: the sum at its end inverts a field element
_MULTIPLE_COST: Final = 120
_WEIGH_COST: Final = 1350
_PREPARE_COST: Final = 30
_SINGLE_COST: Final = 160

_BITS: Final = 128
_POINT_SIZE: Final[int] = ffi.sizeof("secp256k1_pubkey")
_GENERATOR: Final = PublicKey.from_secret((1).to_bytes(32)).format()


def verify_many(items: Sequence[_Item], tag: Tag, randomness: bytes) -> list[bool]:
    """Return for each (public key, 32-byte message, signature) whether the signature is good.

    `randomness` must be fresh for each call and unknown to the maker of the items.
    """
    if len(randomness) != 32:
        raise ValueError("the randomness must be 32 bytes")
    verdicts: list[bool] = []
    for start in range(0, len(items), _BATCH):
        verdicts += _verify_batch(items[start : start + _BATCH], tag, randomness)
    return verdicts


def _verify_batch(items: Sequence[_Item], tag: Tag, randomness: bytes) -> list[bool]:
    if not _batch_pays(len(items), len({public_key for public_key, _, _ in items})):
        return [verify(*item, tag) for item in items]
    batch = _prepare(items, tag, randomness)
    verdicts = [False] * len(items)
    # In the order of signers a part has few of them, which is cheaper, and one signer's bad
    # signatures spoil few parts.
    order = np.argsort(batch.signers, kind="stable")
    whole = _holds(batch, order)
    for start in range(0, len(order), _PART):
        part = order[start : start + _PART]
        good = whole or (len(part) < len(order) and _holds(batch, part))
        places: list[int] = part.tolist()
        for position in [batch.positions[place] for place in places]:
            verdicts[position] = good or verify(*items[position], tag)
    return verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The well-formed items of a batch, column by column."""

    positions: list[int]
    """Where each item stands in the caller's sequence."""
    signers: list[int]
    """For each item the place of its public key in `keys`."""
    challenges: list[int]
    scalars: list[int]
    coefficients: NDArray[np.uint8]
    """For each item 16 bytes, least significant first."""
    nonces: _Addresses
    """For each item the point R."""
    keys: _Addresses
    """For each distinct public key its point, and last the generator."""
    storage: _Storage


def _prepare(items: Sequence[_Item], tag: Tag, randomness: bytes) -> _Batch:
    """Parse every item, leaving out the malformed ones."""
    keys = ffi.new("secp256k1_pubkey []", len(items) + 1)
    nonces = ffi.new("secp256k1_pubkey []", len(items))
    places: dict[bytes, int | None] = {}
    known = 0
    positions: list[int] = []
    signers: list[int] = []
    challenges: list[int] = []
    scalars: list[int] = []
    for position, (public_key, message, signature) in enumerate(items):
        if len(public_key) != 32 or len(message) != 32 or len(signature) != 64:
            continue
        if public_key not in places:
            places[public_key] = known if _parse(keys + known, b"\x02" + public_key) else None
            known += places[public_key] is not None
        signer = places[public_key]
        scalar = int.from_bytes(signature[32:])
        nonce = signature[:32]
        if signer is None or scalar >= GROUP_ORDER:
            continue
        if not _parse(nonces + len(positions), b"\x02" + nonce):
            continue
        positions.append(position)
        signers.append(signer)
        scalars.append(scalar)
        challenges.append(int.from_bytes(tag("challenge", nonce + public_key + message)))
    _parse(keys + known, _GENERATOR)
    return _Batch(
        positions=positions,
        signers=signers,
        challenges=challenges,
        scalars=scalars,
        coefficients=_coefficients([items[position] for position in positions], randomness),
        nonces=_addresses(nonces, len(positions)),
        keys=_addresses(keys, known + 1),
        storage=[keys, nonces],
    )


def _coefficients(items: Sequence[_Item], randomness: bytes) -> NDArray[np.uint8]:
    """Draw a 128-bit coefficient for each item, from the randomness and from all the items."""
    # Well-formed items are 128 bytes each, so joined bytes stand for one list of items only.
    content = b"".join([part for item in items for part in item])
    stream = blake3(content, key=randomness).digest(length=_BITS // 8 * len(items))
    drawn = np.frombuffer(stream, np.uint8).reshape(len(items), _BITS // 8).copy()
    # A coefficient of zero would leave its item unchecked.
    drawn[~drawn.any(axis=1), 0] = 1
    return drawn


def _holds(batch: _Batch, chosen: NDArray[np.intp]) -> bool:
    """Tell whether the batch equation holds for the chosen items."""
    coefficients, nonces = batch.coefficients[chosen], batch.nonces[chosen]
    stream = coefficients.tobytes()
    weights = [0] * len(batch.keys)
    total = 0
    for place, i in enumerate(chosen.tolist()):
        offset = place * (_BITS // 8)
        coefficient = int.from_bytes(stream[offset : offset + _BITS // 8], "little")
        weights[batch.signers[i]] += coefficient * batch.challenges[i]
        total += coefficient * batch.scalars[i]
    weights[-1] = -total
    reduced = [weight % GROUP_ORDER for weight in weights]
    used = [place for place, weight in enumerate(reduced) if weight]
    keys, scalars = batch.keys[used], [reduced[place] for place in used]
    storage: _Storage = []
    if not _windows_pay(len(nonces), len(keys)):
        terms = _multiples(keys, scalars, storage)
        terms.append(_weigh(_bit_sums(nonces, coefficients, storage), storage))
        return _add(terms, storage) is None
    halves = np.frombuffer(b"".join([s.to_bytes(32, "little") for s in scalars]), np.uint8)
    halves = halves.reshape(-1, 32)
    low = _bit_sums(
        np.concatenate([nonces, keys]), np.concatenate([coefficients, halves[:, :16]]), storage
    )
    return _weigh(low + _bit_sums(keys, halves[:, 16:], storage), storage) is None


def _bit_sums(
    points: _Addresses, scalars: NDArray[np.uint8], storage: _Storage
) -> list[int | None]:
    """Give for each of 128 bits the sum of the points whose scalar has that bit; None is infinity.

    Scalars are 16 bytes each, least significant first.
    """
    width = _window_width(len(points))
    windows = -(-_BITS // width)
    # One row a byte, so that a window is read from two neighbouring rows, the last being empty.
    rows = np.zeros((_BITS // 8 + 1, len(points)), np.uint16)
    rows[:-1] = scalars.T
    keys = np.empty((windows, len(points)), np.uint16)
    for window in range(windows):
        byte, bit = divmod(window * width, 8)
        digits = (rows[byte] | rows[byte + 1] << 8) >> bit & (1 << width) - 1
        keys[window] = digits | window << width
    flat = keys.ravel()
    present = np.flatnonzero(flat & (1 << width) - 1)
    flat, sums = _sum_groups(flat[present], points[present % len(points)], storage)
    by_bit = [np.flatnonzero(flat >> bit & 1) for bit in range(width)]
    bits = [(flat[chosen] >> width) * width + bit for bit, chosen in enumerate(by_bit)]
    flat, sums = _sum_groups(np.concatenate(bits), sums[np.concatenate(by_bit)], storage)
    found: list[int | None] = [None] * _BITS
    for bit, address in zip(flat.tolist(), sums.tolist(), strict=True):
        found[bit] = address
    return found


def _windows_cost(count: int, width: int) -> float:
    """Estimate the cost of `_bit_sums` for this many points with random scalars."""
    digits = (1 << width) - 1
    share = count / (digits + 1)
    # A digit's number of points is about Poisson; a point alone under its digit costs no call.
    empty = math.exp(-share)
    filled = digits * (1 - empty)
    calls = filled - digits * share * empty
    per_window = count * (1 - empty) + calls * _CALL_COST + width * (filled / 2 + _CALL_COST)
    return math.ceil(_BITS / width) * per_window


def _window_width(count: int) -> int:
    # Two bytes hold any window of up to 9 bits, wherever it begins.
    return min(range(2, 10), key=lambda width: _windows_cost(count, width))


def _sum_cost(count: int) -> float:
    return _windows_cost(count, _window_width(count)) + _WEIGH_COST


def _windows_pay(items: int, signers: int) -> bool:
    """Tell whether this many signers' keys had better join the windows than be multiplied."""
    together = _sum_cost(items + signers) + _sum_cost(signers)
    return together < _sum_cost(items) + signers * _MULTIPLE_COST


def _batch_pays(items: int, signers: int) -> bool:
    """Tell whether one batch is cheaper than single checks."""
    keys = min(signers * _MULTIPLE_COST, _sum_cost(items + signers))
    return items * _PREPARE_COST + _sum_cost(items) + keys < items * _SINGLE_COST


def _sum_groups(
    keys: NDArray[np.uint16], points: _Addresses, storage: _Storage
) -> tuple[NDArray[np.uint16], _Addresses]:
    """Add the points having equal keys; a sum at infinity, being nothing, is left out."""
    # NumPy sorts 16-bit keys by radix when asked for a stable sort, which is much the fastest.
    order = np.argsort(keys, kind="stable")
    keys, points = keys[order], points[order]
    edges = np.flatnonzero(np.diff(keys, prepend=-1, append=-1))
    starts, counts = edges[:-1], np.diff(edges)
    several = np.flatnonzero(counts > 1)
    sums = ffi.new("secp256k1_pubkey []", len(several))
    storage.append(sums)
    pointers = ffi.cast("secp256k1_pubkey **", points.ctypes.data)
    combine, context = lib.secp256k1_ec_pubkey_combine, lib.secp256k1_context_static
    finite = np.ones(len(starts), np.bool_)
    spans = zip(starts[several].tolist(), counts[several].tolist(), strict=True)
    for slot, (start, count) in enumerate(spans):
        if not combine(context, sums + slot, pointers + start, count):
            finite[several[slot]] = False
    # A point alone under its key is its own sum.
    totals = points[starts]
    totals[several] = _addresses(sums, len(several))
    return keys[starts][finite], totals[finite]


def _weigh(bit_sums: Sequence[int | None], storage: _Storage) -> int | None:
    """Add the sums of all bits, each multiplied by the power of two it stands for."""
    total: int | None = None
    # Two bits a step halve the calls. Adding a point to itself is legal for the library.
    for low in range(len(bit_sums) - 2, -1, -2):
        one, two = bit_sums[low], bit_sums[low + 1]
        total = _add([total, total, total, total, two, two, one], storage)
    return total


def _multiples(points: _Addresses, scalars: Sequence[int], storage: _Storage) -> list[int | None]:
    """Multiply each point by its scalar, none of which is zero."""
    products = ffi.new("secp256k1_pubkey []", len(points))
    storage.append(products)
    found = _addresses(products, len(points)).tolist()
    for place, (address, scalar) in enumerate(zip(points.tolist(), scalars, strict=True)):
        products[place] = ffi.cast("secp256k1_pubkey *", address)[0]
        lib.secp256k1_ec_pubkey_tweak_mul(
            lib.secp256k1_context_static, products + place, scalar.to_bytes(32)
        )
    return list(found)


def _add(points: Sequence[int | None], storage: _Storage) -> int | None:
    """Add a few points; None is infinity, both ways."""
    finite = [point for point in points if point is not None]
    if not finite:
        return None
    total = ffi.new("secp256k1_pubkey *")
    pointers = ffi.new("uintptr_t []", finite)
    storage.append(total)
    combined = lib.secp256k1_ec_pubkey_combine(
        lib.secp256k1_context_static,
        total,
        ffi.cast("secp256k1_pubkey **", pointers),
        len(finite),
    )
    return int(ffi.cast("uintptr_t", total)) if combined else None


def _parse(target: Any, compressed: bytes) -> bool:  # noqa: ANN401  untyped C
    """Read a compressed point into the target; False if there is no such point."""
    return bool(lib.secp256k1_ec_pubkey_parse(lib.secp256k1_context_static, target, compressed, 33))


def _addresses(array: Any, count: int) -> _Addresses:  # noqa: ANN401  untyped C
    """Give the addresses of the first points of an array."""
    first = int(ffi.cast("uintptr_t", array))
    return np.uintp(first) + np.arange(count, dtype=np.uintp) * np.uintp(_POINT_SIZE)
