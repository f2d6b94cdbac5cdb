"""Dependencies: edges, reach, components; and graphs drawn from them."""

from __future__ import annotations

from lace.rules.dependencies import Dependencies, format_dot, format_graph
from lace.rules.program import check_source
from lace.rules.syntax import PredicateKey, Use

TEXT = """Reach(P,T) :- RecordLink(P,_,_,_,T).
Reach(P,T) :- Reach(P,Q), RecordLink(Q,_,_,_,T).
Lone(P) :- Have(P), not Reach(P,_).
Busy(P) :- Have(P), Cardinality(Reach(P,_),'>','3'), Nothing(P), not Lone(P).
Even(P) :- Odd(P).
Odd(P) :- Even(P).
Odd(P) :- Have(P).
"""
REACH, LONE, BUSY = PredicateKey("Reach", 2), PredicateKey("Lone", 1), PredicateKey("Busy", 1)
EVEN, ODD = PredicateKey("Even", 1), PredicateKey("Odd", 1)
HAVE, LINK = PredicateKey("Have", 1), PredicateKey("RecordLink", 5)


def graph() -> Dependencies:
    return check_source(TEXT).dependencies


def test_edges_and_rules() -> None:
    found = graph()
    assert found.derived == (REACH, LONE, BUSY, EVEN, ODD)
    assert found.rules_for(REACH) == (0, 1)
    assert found.rules_for(HAVE) == ()
    assert [(edge.target, edge.use) for edge in found.edges_from(LONE)] == [
        (HAVE, Use.POSITIVE),
        (REACH, Use.NEGATIVE),
    ]
    assert found.edges_from(HAVE) == ()
    assert sum(1 for _ in found.edges()) == 12
    assert found.is_derived(EVEN)
    assert not found.is_derived(HAVE)


def test_reach() -> None:
    found = graph()
    assert found.reach(LONE) == {HAVE, REACH, LINK}
    assert found.reach(EVEN) == {HAVE, EVEN, ODD}
    assert found.reach(HAVE) == frozenset()


def test_components_follow_what_they_depend_on() -> None:
    assert graph().components() == ((REACH,), (LONE,), (BUSY,), (EVEN, ODD))
    assert Dependencies(()).components() == ()


def test_long_chains_do_not_recurse() -> None:
    text = "\n".join(f"A{i}() :- A{i + 1}()." for i in range(4095))
    assert len(check_source(text).components) == 4095


def test_the_graph_as_text() -> None:
    assert format_graph(check_source(TEXT)) == (
        "stratum 0\n"
        "  Reach/2  lines 1, 2\n"
        "    from Reach/2, RecordLink/5\n"
        "  Even/1  line 5\n"
        "    from Odd/1\n"
        "  Odd/1  lines 6, 7\n"
        "    from Even/1, Have/1\n"
        "stratum 1\n"
        "  Lone/1  line 3\n"
        "    from Have/1\n"
        "    not Reach/2\n"
        "stratum 2\n"
        "  Busy/1  line 4\n"
        "    from Have/1, Nothing/1\n"
        "    not Lone/1\n"
        "    counts Reach/2\n"
        "base facts: Have/1, RecordLink/5\n"
        "nobody defines: Nothing/1\n"
    )


def test_small_graphs_as_text() -> None:
    assert format_graph(check_source("")) == "no rules\n"
    assert format_graph(check_source("A() :- true.")) == "stratum 0\n  A/0  line 1\n"


def test_the_graph_as_dot() -> None:
    text = "A(P) :- Have(P), not B(P), Cardinality(B(_),'<','3').\nB(P) :- Have(P), Gone(P).\n"
    assert format_dot(check_source(text)) == (
        "digraph lacegram {\n"
        "  rankdir=BT;\n"
        "  node [shape=box];\n"
        '  "Have/1" [shape=ellipse];\n'
        '  "Gone/1" [shape=ellipse];\n'
        "  subgraph cluster_0 {\n"
        '    label="stratum 0";\n'
        '    "B/1";\n'
        "  }\n"
        "  subgraph cluster_1 {\n"
        '    label="stratum 1";\n'
        '    "A/1";\n'
        "  }\n"
        '  "B/1" -> "A/1" [style=dotted, label="counts"];\n'
        '  "B/1" -> "A/1" [style=dashed, label="not"];\n'
        '  "Gone/1" -> "B/1";\n'
        '  "Have/1" -> "A/1";\n'
        '  "Have/1" -> "B/1";\n'
        "}\n"
    )
