"""The workloads as SQL, over tables of texts and over interned ones; no engine, only texts.

Interned, every value is a number in `dictionary`; field names, occurrence indexes and link
labels have a small dictionary of their own, which makes loading faster and changes no answer.
The result of a rule's predicate is a table of its name; queries are joins that DuckDB orders.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INTERNED", "LOOP_ROUND", "LOOP_START", "RESULTS", "TEXTS", "interning"]

RESULTS: Final = {
    "W1": "selected",
    "W2": "support",
    "W3": "members_records",
    "TC": "reach",
    "W4": "newest",
    "W5": "send",
}
"""The table that has a workload's last predicate."""

_SMALL: Final = "nid"
"""The columns that the small dictionary is for."""


def interning(predicates: dict[str, str]) -> list[str]:
    """Return statements that make interned tables, given each predicate's columns."""

    def dictionary(name: str, small: bool) -> str:
        columns = [
            f"SELECT {column} AS v FROM {predicate}_text"
            for predicate, each in predicates.items()
            for column in each
            if (column in _SMALL) is small
        ]
        numbered = "(row_number() OVER ())::INTEGER AS id"
        return f"CREATE TABLE {name} AS SELECT v, {numbered} FROM ({' UNION '.join(columns)})"

    statements = [dictionary("dictionary", False)]
    if any(set(_SMALL) & set(columns) for columns in predicates.values()):
        statements.append(dictionary("small", True))
    for predicate, columns in predicates.items():
        ids = ", ".join(f"of_{column}.id AS {column}" for column in columns)
        joins = " ".join(
            f"JOIN {'small' if column in _SMALL else 'dictionary'} of_{column}"
            f" ON of_{column}.v = f.{column}"
            for column in columns
        )
        statements.append(
            f"CREATE TABLE {predicate} AS SELECT {ids} FROM {predicate}_text f {joins}"
        )
    return statements


def _table(name: str, query: str) -> str:
    return f"CREATE OR REPLACE TEMP TABLE {name} AS {query}"


def _value(text: str) -> str:
    return f"(SELECT id FROM dictionary WHERE v = '{text}')"


def _label(text: str) -> str:
    return f"(SELECT id FROM small WHERE v = '{text}')"


def _same(text: str) -> str:
    return f"'{text}'"


def _record_workloads(interned: bool) -> dict[str, tuple[str, ...]]:
    """Return W1, W2 and W3; they differ in how a constant is written and a prefix tested."""
    value, label = (_value, _label) if interned else (_same, _same)

    def fields(*wanted: tuple[str, str]) -> str:
        joins = "".join(f" JOIN Field f{at} USING (p)" for at in range(len(wanted)))
        tests = " AND ".join(
            f"f{at}.n = {label(name)}" + (f" AND f{at}.v = {value(text)}" if text else "")
            for at, (name, text) in enumerate(wanted)
        )
        return f"FROM Have h{joins} WHERE {tests}"

    def keys(app: str) -> str:
        return fields(("Group", "keys"), ("App", app), ("Name", ""))

    ding = fields(("Group", "u"), ("App", "ding"), ("Name", ""))
    links = (
        "f2.v IN (SELECT id FROM dictionary WHERE starts_with(v, 'links/'))"
        if interned
        else "starts_with(f2.v, 'links/')"
    )
    evidence = f"l.n = {label('+Link')} AND l.d = {label('evidence')}"
    signed = f"f.n = {label('Signed-By')}"
    selected = _table("selected", f"SELECT DISTINCT p {ding} AND {links}")
    return {
        "W1": (selected,),
        "W2": (
            selected,
            _table(
                "support",
                "WITH RECURSIVE s(t) AS ("
                f"SELECT l.t FROM selected JOIN RecordLink l USING (p) WHERE {evidence} UNION "
                f"SELECT l.t FROM s JOIN RecordLink l ON l.p = s.t WHERE {evidence}) FROM s",
            ),
        ),
        "W3": (
            *(_table(name, f"SELECT DISTINCT f2.v {keys(name)}") for name in ("blocked", "member")),
            _table(
                "members_records",
                "SELECT DISTINCT p FROM Have h JOIN Field f USING (p) "
                f"WHERE {signed} AND f.v IN (FROM member) AND f.v NOT IN (FROM blocked)",
            ),
        ),
    }


def _loop(evidence: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    start = (
        _table("evidence", f"SELECT p, t FROM RecordLink WHERE {evidence}"),
        _table("delta", "SELECT DISTINCT e.t FROM selected s JOIN evidence e USING (p)"),
        _table("support", "FROM delta"),
    )
    turn = (
        _table(
            "fresh",
            "SELECT DISTINCT e.t FROM delta d JOIN evidence e ON e.p = d.t "
            "WHERE NOT EXISTS (FROM support s WHERE s.t = e.t)",
        ),
        "INSERT INTO support FROM fresh",
        _table("delta", "FROM fresh"),
    )
    return start, turn


_LOOPS: Final = {
    "interned_evidence": _loop(f"n = {_label('+Link')} AND d = {_label('evidence')}"),
    "text_evidence": _loop("n = '+Link' AND d = 'evidence'"),
}
LOOP_START: Final = {name: loop[0] for name, loop in _LOOPS.items()}
LOOP_ROUND: Final = {name: loop[1] for name, loop in _LOOPS.items()}

_TC: Final = _table(
    "reach",
    "WITH RECURSIVE r(p, t) AS (SELECT p, t FROM Edge UNION "
    "SELECT r.p, e.t FROM r JOIN Edge e ON e.p = r.t) FROM r",
)
_W4: Final = (
    _table(
        "before",
        "SELECT a.p, b.p AS q FROM Candidate a JOIN Candidate b ON a.t = b.t AND b.p > a.p UNION "
        "SELECT a.p, b.p AS q FROM Candidate a JOIN Candidate b ON b.t > a.t",
    ),
    _table(
        "newest",
        "SELECT DISTINCT c.p FROM Candidate c LEFT JOIN "
        "(SELECT p, count(*) AS n FROM before GROUP BY p) b USING (p) WHERE coalesce(b.n, 0) < 100",
    ),
)


def _w5() -> tuple[str, ...]:
    field = "JOIN Field {0} ON {0}.p = a.p AND {0}.n = '{1}'"
    group, app, name = (
        field.format("g", "Group"),
        field.format("k", "App"),
        field.format("m", "Name"),
    )
    rest = "substr(m.v, 7)"
    segment = f"strpos(translate({rest}, '.', '/'), '/')"
    return (
        *(
            _table(
                key,
                f"SELECT DISTINCT m.v FROM Have a {group} {app} {name} "
                f"WHERE g.v = 'keys' AND k.v = '{key}'",
            )
            for key in ("blocked", "member")
        ),
        _table("good", "SELECT v FROM member WHERE v NOT IN (FROM blocked)"),
        _table("signed", f"SELECT DISTINCT a.p, s.v FROM Have a {field.format('s', 'Signed-By')}"),
        _table("admitted", "SELECT DISTINCT p FROM signed JOIN good USING (v)"),
        _table("rejected", "SELECT DISTINCT p FROM signed WHERE v NOT IN (FROM good)"),
        _table(
            "sel1",
            f"SELECT DISTINCT a.p FROM admitted a {group} {app} {name} "
            "WHERE g.v = 'u' AND k.v = 'ding' AND starts_with(m.v, 'links/')",
        ),
        _table(
            "sel2",
            f"SELECT DISTINCT a.p FROM admitted a {group} {name} "
            "WHERE g.v = 'pub' AND suffix(m.v, '.json')",
        ),
        _table(
            "sel3",
            f"SELECT DISTINCT a.p FROM admitted a {name} WHERE starts_with(m.v, 'links/') "
            f"AND {segment} > 1 AND substr({rest}, {segment} + 1) = 'msg'",
        ),
        _table("chosen", "FROM sel1 UNION FROM sel2 UNION FROM sel3"),
        _table(
            "support",
            "WITH RECURSIVE s(t) AS (SELECT l.t FROM chosen JOIN RecordLink l USING (p) "
            "WHERE l.n = '+Link' AND l.d = 'evidence' UNION SELECT l.t FROM s JOIN RecordLink l "
            "ON l.p = s.t WHERE l.n = '+Link' AND l.d = 'evidence') FROM s",
        ),
        _table("missing", "SELECT t FROM support WHERE t NOT IN (FROM Have)"),
        _table(
            "wanted",
            "SELECT p FROM chosen WHERE p NOT IN (FROM rejected) UNION "
            "SELECT t FROM support WHERE t IN (FROM Have)",
        ),
        _table(
            "busy",
            "SELECT v FROM member WHERE (SELECT count(*) FROM signed s WHERE s.v = member.v) > 8",
        ),
        _table(
            "hiseq",
            f"SELECT DISTINCT a.p FROM wanted a {field.format('s', 'Seq')} "
            "WHERE TRY_CAST(s.v AS HUGEINT) >= 500",
        ),
        _table(
            "send",
            "SELECT DISTINCT w.p FROM wanted w JOIN signed s USING (p) "
            "WHERE s.v NOT IN (FROM busy) AND w.p NOT IN (FROM hiseq)",
        ),
    )


_OTHERS: Final = {"TC": (_TC,), "W4": _W4, "W5": _w5()}
INTERNED: Final = {**_record_workloads(True), **_OTHERS}
TEXTS: Final = {**_record_workloads(False), **_OTHERS}
