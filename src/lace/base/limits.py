"""Every limit, setting and default of Lace, in one typed place.

`FORMAT` constants are part of the record format and the same everywhere; `Settings`
are what a lace, an environment or a command line may change. Reading files and the
environment is not done here: callers hand in names and texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lace.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping


KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MAX_LINE_BYTES: Final = 1024
"""Bytes of a header line without its LF (010)."""
LEAST_FACT_BYTES: Final = 48
"""What a fact counts for at least in `max_fact_block_size`, because of the memory it takes.

Every fact that names a record is longer. Questions about partitions can be shorter, but there
are far fewer of them (`max_partition_summaries`).
"""
MAX_EXTRA_HEADERS: Final = 512
"""Extra headers of one Plex (010)."""
MAX_HEAD_BYTES: Final = MIB
"""Bytes a reader holds while it looks for the end of a record's headers."""
MAX_DATA_SETTING: Final = 900 * MIB
"""The most that `max_data_bytes` can allow: what the store can hold in one row."""
MAX_VALUE_SETTING: Final = 16 * MIB
"""The most that `max_value_bytes` can allow."""
MAX_DATA_LENGTH: Final = 2**31 - 1
"""A Data-Length above this is nonsense, not a large record: no store can hold it."""
MAX_MANIFEST_BYTES: Final = 64 * MIB
"""Bytes of the file that lists what a warehouse consists of."""
MAX_PROVEN_DIGESTS: Final = 2**24
"""Digests that are held at once to compute roots again in one place."""
MAX_GIVEN_RECORDS: Final = 250
"""Records that one operation on a peer names: a peer takes a selector of 256 rules."""
MAX_LOGGED_CHARACTERS: Final = 500
"""Characters of a message that the log of a lace keeps."""
MAX_LINK_EVENTS: Final = 10_000
"""Events of a link that wait to be looked at; of more, the oldest are forgotten and counted."""
MAX_WAIT_TICKS: Final = 1_000_000
"""Ticks that a bounded exchange can be told to wait for before it closes."""
MAX_EVENT_RECORDS: Final = 1_000
"""Records that one event of a link names; more that are stored together are named by several."""

STORED_FORMATS: Final = frozenset({"H3"})
"""The record formats that stores can validate and keep, by the suffix of their hashes."""

_MOST_FACTS: Final = 2**31 - 1
"""More rows than this no engine can number."""

SPARK_HANDOVER_ROWS: Final = 2**23
"""Rows that a recursive fixed point reads, up to which Spark hands it to the embedded engine."""
SPARK_SMALL_ROWS: Final = 2**16
"""Base facts up to which the embedded engine evaluates all that Spark is asked."""
SPARK_BROADCAST_ROWS: Final = 2**20
"""Rows of a table that Spark sends to every executor, instead of sorting what they meet."""

# ASCII, because ignoring case alone would let the Kelvin sign pass for a K.
_SIZE: Final = re.compile(
    r"([0-9]{1,19})(?:\.([0-9]{1,3}))?\s?(B|[KMG]i?B)?", re.IGNORECASE | re.ASCII
)
_UNITS: Final = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
}


@dataclass(frozen=True, slots=True)
class _Range:
    """What a setting may be, and what it is for."""

    meaning: str
    lowest: int
    highest: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class _Names:
    """What a setting that takes names is for, what they are called, and which there are."""

    meaning: str
    unit: str
    choices: tuple[str, ...] = ()
    """The names that it takes; empty for any."""


Value: TypeAlias = "int | tuple[str, ...]"
"""What a setting may hold: a number, or names."""


def _names_setting(meaning: str, unit: str, *choices: str) -> Any:  # noqa: ANN401 - a tuple of names
    made: Any = field(default=(), metadata={"range": _Names(meaning, unit, choices)})
    return made


def _setting(default: int, meaning: str, lowest: int, highest: int, unit: str = "") -> int:
    made: int = field(default=default, metadata={"range": _Range(meaning, lowest, highest, unit)})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with their values; illegal values are refused.

    >>> Settings(max_data_bytes=1024).max_data_bytes
    1024
    """

    max_data_bytes: int = _setting(
        32 * MIB, "largest Blob data that is read or stored", 0, MAX_DATA_SETTING, "bytes"
    )
    max_value_bytes: int = _setting(
        MAX_LINE_BYTES, "longest value of a fact or constant", 1, MAX_VALUE_SETTING, "bytes"
    )
    wait_seconds: int = _setting(
        10, "how long a writer waits for another process", 0, 86_400, "seconds"
    )
    import_batch_records: int = _setting(
        32_000,
        "records stored in one transaction; an exchange takes up to four times as many at once"
        " for a large store",
        1,
        100_000,
    )
    import_batch_bytes: int = _setting(
        20 * MIB, "record bytes that end a transaction early", 1, 64 * MIB, "bytes"
    )
    import_workers: int = _setting(
        0, "validation processes of an import (0: as many as help, for a large one)", 0, 64
    )
    import_max_reports: int = _setting(
        100, "rejected records reported one by one, the rest counted", 0, 1_000_000
    )
    store_cache_bytes: int = _setting(48 * MIB, "page cache of the store", MIB, 16 * GIB, "bytes")
    log_max_operations: int = _setting(10_000, "operations that the log keeps", 1, 10_000_000)
    max_rules: int = _setting(4096, "rules of one lacegram", 0, 1_000_000)
    max_atoms: int = _setting(16_384, "atoms and tests in the body of one rule", 0, 1_000_000)
    max_rule_line_bytes: int = _setting(
        64 * KIB, "longest line of rules, without its LF", 0, 16 * MIB, "bytes"
    )
    max_rules_bytes: int = _setting(16 * MIB, "largest text of one lacegram", 0, GIB, "bytes")
    max_arity: int = _setting(8, "arguments of one atom or fact", 0, 255)
    max_base_facts: int = _setting(2**26, "base facts that an evaluation reads", 0, _MOST_FACTS)
    max_runtime_facts: int = _setting(
        2**24, "runtime and advertisement facts that an evaluation reads", 0, _MOST_FACTS
    )
    max_derived_facts: int = _setting(
        2**26, "facts that rules may make of one predicate", 0, _MOST_FACTS
    )
    max_derived_bytes: int = _setting(
        64 * GIB, "what all facts that rules make may take together", 0, 2**62, "bytes"
    )
    max_iterations: int = _setting(
        100_000, "passes over rules that use each other", 0, 1_000_000_000
    )
    max_work: int = _setting(2**36, "rows that an evaluation may visit", 0, 2**62)
    peer_max_rules: int = _setting(256, "rules of a peer's selector", 0, 1_000_000)
    peer_max_atoms: int = _setting(
        1024, "atoms and tests in the body of one rule of a peer", 0, 1_000_000
    )
    peer_max_rules_bytes: int = _setting(MIB, "largest text of a peer's selector", 0, GIB, "bytes")
    peer_max_derived_facts: int = _setting(
        2**23, "facts that a peer's rules may make of one predicate", 0, _MOST_FACTS
    )
    peer_max_derived_bytes: int = _setting(
        256 * MIB, "what all facts that a peer's rules make may take together", 0, 2**62, "bytes"
    )
    peer_max_iterations: int = _setting(
        10_000, "passes over a peer's rules that use each other", 0, 1_000_000_000
    )
    peer_max_work: int = _setting(
        2**33,
        "work of one evaluation of a peer's rules: rows visited, each by what its step costs",
        0,
        2**62,
    )
    peer_max_memory: int = _setting(
        512 * MIB,
        "what one evaluation of a peer's rules may allocate beyond the facts that it reads",
        0,
        2**62,
        "bytes",
    )
    peer_max_cpu_seconds: int = _setting(
        10, "processor time of one evaluation of a peer's rules", 0, 86_400, "seconds"
    )
    peer_memory_pool: int = _setting(
        768 * MIB,
        "memory that all evaluations of peers' rules of a server share",
        96 * MIB,
        2**62,
        "bytes",
    )
    max_fact_block_size: int = _setting(
        64 * MIB, "largest block of facts in an exchange", MIB, 16 * GIB, "bytes"
    )
    max_setup_block_size: int = _setting(
        MIB, "largest block of setup or hello, which come from anybody", MIB, 16 * GIB, "bytes"
    )
    max_resource_bytes: int = _setting(
        4 * MIB, "texts of rules and plans that one link brings together", MIB, 256 * MIB, "bytes"
    )
    max_advertisement_records_listed: int = _setting(
        100_000, "advertised records in one listing or partition", 1, _MOST_FACTS
    )
    max_partition_summaries: int = _setting(
        16_384, "partition summaries that one loop of an exchange takes", 16_384, _MOST_FACTS
    )
    max_narrowing_depth: int = _setting(
        12, "how often a partition is narrowed, from the first on", 4, 43
    )
    max_total_transferred_bytes: int = _setting(
        GIB, "record bytes that one round brings in a direction", 1, 2**62, "bytes"
    )
    max_loop_iterations: int = _setting(16, "loops of one round that bring no record", 1, 1_000_000)
    max_advertised_records: int = _setting(
        2**22, "advertised records that one exchange brings at once", 1, _MOST_FACTS
    )
    max_advertised_bytes: int = _setting(
        512 * MIB,
        "record hashes and fields of all advertisements that an exchange takes under one plan",
        MIB,
        2**62,
        "bytes",
    )
    max_rejected_records: int = _setting(
        1000, "rejected records after which an exchange ends", 0, 1_000_000_000
    )
    max_cached_modules: int = _setting(
        256, "selectors of peers that are kept for later connections (0: none)", 0, 65_536
    )
    max_cached_modules_of_peer: int = _setting(
        8, "selectors of one peer that are kept for later connections", 0, 65_536
    )
    max_cached_module_bytes: int = _setting(
        32 * MIB, "what all selectors that are kept may take together", 0, 16 * GIB, "bytes"
    )
    max_receipts: int = _setting(
        10_000, "receipts that one round of an exchange publishes", 0, 1_000_000
    )
    max_not_available_records: int = _setting(
        100_000,
        "records answered NotAvailable in one round until that is no progress any more",
        0,
        _MOST_FACTS,
    )
    max_clock_skew_seconds: int = _setting(
        300, "how far the clocks of two sides may be apart", 0, 1_000_000_000, "seconds"
    )
    phase_timeout_seconds: int = _setting(
        30, "how long a turn of an exchange waits for the peer", 1, 86_400, "seconds"
    )
    service_budget_seconds: int = _setting(
        10, "how long a side sends records in one transfer", 1, 86_400, "seconds"
    )
    service_budget_bytes: int = _setting(
        128 * MIB, "record bytes that a side sends in one transfer", 1, 16 * GIB, "bytes"
    )
    tick_interval_seconds: int = _setting(
        10, "time between ticks that this side asks for", 1, 86_400, "seconds"
    )
    max_tick_interval_seconds: int = _setting(
        86_400, "longest time between ticks that a peer may ask for", 1, 1_000_000_000, "seconds"
    )
    max_links: int = _setting(64, "links that a server has at once", 1, 65_536)
    max_links_of_address: int = _setting(
        16, "links that a server has at once from one address or user", 1, 65_536
    )
    idle_link_seconds: int = _setting(
        5,
        "how long a full server waits for the peer of a link before it closes it for a new one",
        0,
        86_400,
        "seconds",
    )
    reconcile_mode: int = _setting(
        2, "how advertisements are compared (0: listed, 1: partitions, 2: fingerprints)", 0, 2
    )
    offer_all_fields: int = _setting(
        0, "negotiate all fields of records, not only those that rules name (1: yes)", 0, 1
    )
    offer_fields: Any = _names_setting(  # noqa: RUF009 - a field of a dataclass
        "the fields that advertisements may carry, and no others; without any, those of 050 and of"
        " one's own selector that the rules of both sides name",
        "names",
    )
    record_formats: Any = _names_setting(  # noqa: RUF009 - a field of a dataclass
        "the record formats that are offered, by the suffix of their hashes; without any, all that"
        " stores can hold",
        "suffixes",
        *sorted(STORED_FORMATS),
    )
    literal_limits: int = _setting(
        0,
        "count as text 050 is written: summaries in the whole exchange, record bytes of both"
        " directions together, every loop, the timeout for a phase (1: yes)",
        0,
        1,
    )
    store_differing: int = _setting(
        0, "store records, too, whose advertisements said something else (1: yes)", 0, 1
    )

    spark_handover_rows: int = _setting(
        SPARK_HANDOVER_ROWS,
        "rows that recursion reads, up to which Spark leaves it to the embedded engine",
        0,
        _MOST_FACTS,
    )
    spark_small_rows: int = _setting(
        SPARK_SMALL_ROWS,
        "base facts up to which Spark leaves all rules to the embedded engine",
        0,
        _MOST_FACTS,
    )
    spark_broadcast_rows: int = _setting(
        SPARK_BROADCAST_ROWS, "rows of a table that Spark sends to every executor", 0, 2**28
    )
    spark_cuts: int = _setting(
        2,
        "where Spark keeps intermediate tables (0: memory, 1: files, 2: files on a cluster)",
        0,
        2,
    )
    warehouse_embedded_records: int = _setting(
        100_000,
        "records of a warehouse up to which a server evaluates plans that are not registered, "
        "and `pipeline verify` evaluates rules again",
        0,
        _MOST_FACTS,
    )
    warehouse_served_records: int = _setting(
        50_000_000,
        "records of a warehouse up to which it is served: each takes 41 bytes of memory",
        0,
        _MOST_FACTS,
    )

    def __post_init__(self) -> None:
        for name, allowed in _ranges().items():
            _check_value(name, getattr(self, name), allowed)


def _check_value(name: str, value: object, allowed: _Range | _Names) -> None:
    if isinstance(allowed, _Names):
        _check_names(name, value, allowed)
    else:
        _check_range(name, value, allowed)


def _check_names(name: str, value: object, allowed: _Names) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        raise SettingError(f"setting {name} must be a list of names, got {value!r}")
    for each in value:
        if not each or any(mark.isspace() or mark == ":" for mark in each):
            raise SettingError(
                f"setting {name}: a name must have no space and no colon, got {each!r}"
            )
        if allowed.choices and each not in allowed.choices:
            raise SettingError(
                f"setting {name}: each of the {allowed.unit} must be one of "
                f"{', '.join(allowed.choices)}, got {each!r}",
                hint="without the setting, all of them are taken",
            )


def _ranges() -> dict[str, _Range | _Names]:
    return {entry.name: entry.metadata["range"] for entry in fields(Settings)}


def _check_range(name: str, value: object, allowed: _Range) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingError(f"setting {name} takes a whole number, not {value!r}")
    if not allowed.lowest <= value <= allowed.highest:
        raise SettingError(
            f"setting {name}={value} is outside {allowed.lowest} to {allowed.highest}",
            hint=f"it is: {allowed.meaning}",
        )


DEFAULT_SETTINGS: Final = Settings()


def parse_setting(name: str, value: object) -> Any:  # noqa: ANN401 - a number, or names
    """Return what a text, number or list gives for the setting of that name.

    Sizes take a unit: `64MiB`, `1 GB`, `0.5GiB`. Names in one text have spaces between them.

    Raises:
        SettingError: no such setting, no number, or out of range.
    """
    ranges = _ranges()
    if name not in ranges:
        raise SettingError(f"there is no setting {name!r}", hint=_closest(name, list(ranges)))
    allowed = ranges[name]
    if isinstance(allowed, _Names):
        found = tuple(value.split()) if isinstance(value, str) else value
        made = tuple(found) if isinstance(found, list | tuple) else found
        _check_names(name, made, allowed)
        return tuple(dict.fromkeys(made)) if isinstance(made, tuple) else ()
    number = value if isinstance(value, int) else _parse_number(name, str(value), allowed)
    _check_range(name, number, allowed)
    return number


def _parse_number(name: str, text: str, allowed: _Range) -> int:
    found = _SIZE.fullmatch(text.strip())
    is_size = allowed.unit == "bytes"
    if not found or (found[3] and not is_size) or (found[2] and not found[3]):
        takes = "a size such as 64MiB" if is_size else "a whole number"
        raise SettingError(f"setting {name} takes {takes}, not {text!r}")
    unit = _UNITS[(found[3] or "b").lower()]
    fraction = found[2] or ""
    return int(found[1] + fraction) * unit // int(10 ** len(fraction))


def _closest(name: str, known: list[str]) -> str:
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else "`lace config show` lists all settings"


@dataclass(frozen=True, slots=True)
class SettingSource:
    """Settings from one place, by name; later sources win over earlier ones."""

    origin: str
    values: Mapping[str, object]


def resolve_settings(
    sources: list[SettingSource], faults: list[SettingError] | None = None
) -> tuple[Settings, dict[str, str]]:
    """Return the settings that the sources give together, and where each comes from.

    Args:
        sources: the later goes over the earlier.
        faults: takes what is wrong, which then counts for nothing.

    Raises:
        SettingError: something is wrong, and there are no `faults` to take it.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_ranges(), "default")
    for source in sources:
        for name, value in source.values.items():
            try:
                values[name] = parse_setting(name, value)
            except SettingError as error:
                error.message = f"{source.origin}: {error.message}"
                if faults is None:
                    raise
                faults.append(error)
                continue
            origins[name] = source.origin
    return replace(DEFAULT_SETTINGS, **values), origins


def describe_settings() -> list[tuple[str, str, str]]:
    """Return name, meaning and unit of every setting, in their order."""
    return [(name, allowed.meaning, allowed.unit) for name, allowed in _ranges().items()]
