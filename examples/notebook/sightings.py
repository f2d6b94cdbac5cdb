"""A first look at Lace, as a notebook: records of birds, questions about them, and the answers.

Open it with `marimo edit examples/notebook/sightings.py`; docs/how-to/notebook.md tells more. It
makes its own lace in a temporary folder, with the same records each time, and needs no network.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Sightings")

with app.setup:
    import random
    import tempfile
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import UTC, date, datetime, timedelta
    from html import escape
    from pathlib import Path

    import marimo as mo

    import lace

    FIRST_DAY = datetime(2026, 3, 2, 6, tzinfo=UTC)
    DAYS = 26 * 7
    SPECIES = ("bittern", "crane", "kingfisher", "reed warbler", "water rail")
    PLACES = ("east hide", "long bridge", "north reeds")
    COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#7b8794")


@app.cell(hide_code=True)
def welcome():
    mo.md("""
    # Birds of the marsh

    Four people watch birds and keep what they see as *records* in a *lace*, which is a folder.
    This notebook opens it, looks at the records, asks questions about them by *rules*, and asks
    why an answer is what it is. At the end it tests a *policy*: what would a museum get to see?

    You can change any cell; the cells that depend on it run again. Nothing here leaves this
    machine.
    """)
    return


@app.cell(hide_code=True)
def about_people():
    mo.md("""
    ## Who

    Each of them has a key. Its *verifier* is public: it says who signed a record. So that
    everybody sees the same notebook, these keys are made from names, and anybody could sign with
    them. For keys of your own, use `lace.SigningKey.generate()`.
    """)
    return


@app.function
def example_key(name: str) -> lace.SigningKey:
    """Return the key of an example: always the same, and so not a secret."""

    def fixed(size: int) -> bytes:
        return name.encode().ljust(size, b".")

    return lace.SigningKey(fixed(32), fixed)


@app.cell
def people():
    keys = {name: example_key(name) for name in ("Ada", "Ben", "Cleo", "Dov")}
    names = {str(key.verifier): name for name, key in keys.items()}
    names
    return keys, names


@app.cell(hide_code=True)
def about_lace():
    mo.md("""
    ## A lace

    A record has a coordinate (group, app, name), a time, headers, and data. Here, a sighting names
    a species; a confirmation links to the sighting that somebody else has seen as well; and people
    vouch for one another. The functions that make them are at the end of this notebook.

    To look at a lace of your own, give its folder to `lace.open`.
    """)
    return


@app.cell
def opened(keys: dict[str, lace.SigningKey]):
    folder = tempfile.TemporaryDirectory(prefix="sightings-")
    store = lace.open(Path(folder.name) / "marsh.lace")
    store.add_all(example_records(keys))
    store.records("//marsh//birds//sightings/", sort="tai", limit=8)
    return folder, store


@app.cell(hide_code=True)
def about_time():
    mo.md("""
    ## Records over time

    `store.records()` is read row by row, so this works for a large lace too. Each row has the time
    of its record and who signed it. Point at a bar to see its number.
    """)
    return


@app.cell
def plotted(names: dict[str, str], store: lace.Lace):
    weeks = count_weeks(store.records(), names)
    plot = draw_weeks(weeks)
    mo.Html(plot)
    return plot, weeks


@app.cell(hide_code=True)
def about_rules():
    mo.md("""
    ## A question

    Which sightings can be reported? Those that were confirmed by somebody else whom we trust, and
    that do not give away a nest. We trust Ada, and whomever somebody vouches for whom we trust.

    Rules say just that; a text with rules is a *lacegram*. `Have`, `Field` and `RecordLink` are
    what a lace knows of its records; the other names are ours. Rules are checked before they run.
    """)
    return


@app.cell
def asked(keys: dict[str, lace.SigningKey]):
    rules = lace.Lacegram.parse(
        f"""\
    #:json {{"label":"where trust begins"}}
    Trusted('{keys["Ada"].verifier}') :- true.
    Trusted(V) :- Trusted(W), Field(R,'Signed-By',_,W), Field(R,'Vouches-For',_,V).
    Sighting(P) :- Have(P), Field(P,'Group',_,'marsh'), Field(P,'Species',_,_).
    Nest(P) :- Sighting(P), Field(P,'Nest',_,_).
    ConfirmedBy(P,B) :- RecordLink(Q,'+Link',_,'confirms',P), Field(Q,'Signed-By',_,B).
    Confirmed(P) :- Sighting(P), Field(P,'Signed-By',_,A), ConfirmedBy(P,B), Trusted(B), A != B.
    Reported(N,P) :- Confirmed(P), not Nest(P), Field(P,'Name',_,N).
    """,
        name="marsh.lace",
    )
    mo.md(f"`{rules.id}`: {len(rules.rules)} rules, {len(rules.warnings)} warnings")
    return (rules,)


@app.cell
def answered(rules: lace.Lacegram, store: lace.Lace):
    result = store.query(rules, predicates=["Reported/2", "Trusted/1"])
    result
    return (result,)


@app.cell(hide_code=True)
def about_mistakes():
    mo.md("""
    A mistake is told before anything runs, with its place and what to do. Here `Q` comes from
    nowhere:
    """)
    return


@app.cell
def mistaken():
    mistake = ""
    try:
        lace.Lacegram.parse("Reported(Q) :- Sighting(P).", name="mistake.lace")
    except lace.RuleError as error:
        mistake = str(error)
    mo.plain_text(mistake)
    return (mistake,)


@app.cell(hide_code=True)
def about_why():
    mo.md("""
    ## Why?

    Take one of the answers: the one with the most steps behind it. `why` shows from which rules and
    which records it follows. Go down the tree, and you come to the records by which Ada vouches for
    Ben, and Ben for Cleo.
    """)
    return


@app.cell
def explained(result: lace.Result):
    reported = [result.why("Reported", *values) for values in sorted(result["Reported/2"])]
    why = max(reported, key=lambda each: each.height or 0)
    why
    return (why,)


@app.cell(hide_code=True)
def about_why_not():
    mo.md("""
    ## And why not?

    Dov has confirmed sightings, too. One that nobody else has confirmed is not reported. Ask for it
    in the same way, and you are told what each rule lacks: nobody vouches for Dov.
    """)
    return


@app.cell
def not_explained(
    keys: dict[str, lace.SigningKey], result: lace.Result, rules: lace.Lacegram, store: lace.Lace
):
    dov = str(keys["Dov"].verifier)
    confirmed = store.query(rules, predicates=["ConfirmedBy/2"])["ConfirmedBy/2"]
    by_others = {record for record, verifier in confirmed if verifier != dov}
    by_dov_alone = sorted({record for record, _ in confirmed} - by_others)
    why_not = result.why("Confirmed", by_dov_alone[0])
    why_not
    return by_dov_alone, why_not


@app.cell(hide_code=True)
def about_policy():
    mo.md("""
    ## What would a museum see?

    A policy *selects* what is to be shared, and *exposes* records to one viewer: what is not
    exposed does not exist for the other side's rules. Before a byte leaves, `preview` tells which
    records would be sent, and `disclose` what the museum learns from all that it may query.
    """)
    return


@app.cell
def disclosed(store: lace.Lace):
    museum = str(example_key("museum").verifier)
    select = """
    SelectHave(P) :- Have(P), Field(P,'App',_,'birds').
    SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'App',_,'birds').
    """
    hide_nests = """
    _Nest(P) :- Field(P,'Nest',_,_).
    AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'birds'), not _Nest(P).
    """
    hide_links_too = """
    _Nest(P) :- Field(P,'Nest',_,_).
    _Nest(Q) :- RecordLink(Q,'+Link',_,'confirms',P), _Nest(P).
    AllowQueryRecord(V,P) :- _Viewer(V), Field(P,'App',_,'birds'), not _Nest(P).
    """
    disclosures = []
    for exposure in (hide_nests, hide_links_too):
        policy = lace.Policy(select=select, exposures=[(exposure, museum)])
        sent = len(store.preview(policy, select, viewer=museum).permissions.may_send)
        disclosures.append((sent, store.disclose(policy, museum)))
    (loose_sent, loose), (tight_sent, tight) = disclosures
    mo.md(f"""
    | exposed | would be sent | hashes of records that it may not see |
    | --- | --- | --- |
    | all but nests | {loose_sent} | {len(loose.hidden_hashes)} |
    | nor what links to a nest | {tight_sent} | {len(tight.hidden_hashes)} |

    With the first exposure the museum would learn that {len(loose.hidden_hashes)} more records
    exist: a confirmation names the nest that it confirms. The second one keeps those back as well.
    The fields that the museum may read then:
    {", ".join(field.name for field in tight.fields)}.
    """)
    return loose, loose_sent, tight, tight_sent


@app.cell(hide_code=True)
def about_more():
    mo.md("""
    ## Go on

    The tutorial in `docs/tutorial` does all this at a terminal and lets two laces converge.
    What follows are the functions that make the records of this notebook, and draw the plot.
    """)
    return


@app.function(hide_code=True)
def example_plex(when: datetime, name: str, words: str, *headers: tuple[str, str]) -> lace.Plex:
    """Return a record of the marsh; its maker may sign it."""
    return lace.Plex(
        group="marsh",
        app="people" if name.startswith("vouch/") else "birds",
        name=name,
        tai=lace.Tai.from_unix_nanoseconds(int(when.timestamp()) * 10**9),
        headers=headers,
        data=words.encode(),
    )


@app.function(hide_code=True)
def example_records(keys: Mapping[str, lace.SigningKey]) -> Iterator[lace.Plex | lace.Seal]:
    """Yield half a year of records, the same each time."""
    for week, (who, whom) in enumerate((("Ada", "Ben"), ("Ben", "Cleo"))):
        when = FIRST_DAY + timedelta(weeks=week)
        vouching = ("Vouches-For", str(keys[whom].verifier))
        yield example_plex(when, f"vouch/{whom}", f"I know {whom}.", vouching).seal(keys[who])
    chance = random.Random(2026)
    signers = tuple(keys.values())
    for day in range(DAYS):
        when = FIRST_DAY + timedelta(days=day, minutes=int(chance.random() * 600))
        if day % 30 == 0:  # by a machine that has no key
            yield example_plex(when, f"water/{when:%Y-%m-%d}", f"{int(chance.random() * 90)} cm")
        # The fewest in March, the most in the middle of the summer.
        if chance.random() > 0.2 + min(day, DAYS - day) / DAYS:
            continue
        species, place = (each[int(chance.random() * len(each))] for each in (SPECIES, PLACES))
        signer, other = (signers[int(chance.random() * len(signers))] for _each in range(2))
        headers = [("Species", species), ("Place", place)]
        if chance.random() < 0.15:
            headers.append(("Nest", "yes"))
        name = f"{when:%Y-%m-%d}/{species.replace(' ', '-')}"
        words = f"A {species} at the {place}."
        sighting = example_plex(when, f"sightings/{name}", words, *headers).seal(signer)
        yield sighting
        if chance.random() < 0.6:
            later = when + timedelta(days=1)
            link = ("+Link", f"confirms {sighting.id}")
            yield example_plex(later, f"confirmations/{name}", "So it was.", link).seal(other)


@app.function(hide_code=True)
def count_weeks(
    records: Iterable[lace.StoredRecord], names: Mapping[str, str]
) -> dict[date, Counter[str]]:
    """Count the records of each week, by the name of who signed them."""
    weeks: dict[date, Counter[str]] = {}
    for row in records:
        if row.tai is not None:
            seconds = lace.Tai(row.tai).unix_nanoseconds // 10**9
            day = datetime.fromtimestamp(seconds, UTC).date()
            monday = day - timedelta(days=day.weekday())
            signer = "unsigned" if row.signed_by is None else names.get(row.signed_by, "others")
            weeks.setdefault(monday, Counter())[signer] += 1
    return weeks


@app.function(hide_code=True)
def draw_weeks(weeks: Mapping[date, Counter[str]]) -> str:
    """Return a picture (SVG) with a bar for each week, divided by who signed."""
    if not weeks:
        return "<p>There are no records with a time.</p>"
    first, last = min(weeks), max(weeks)
    count, highest = (last - first).days // 7 + 1, max(map(Counter.total, weeks.values()))
    step, unit, left, floor = 660 / count, 200 / highest, 40, 250
    signers = sorted({signer for bars in weeks.values() for signer in bars})
    colours = {each: COLOURS[index % len(COLOURS)] for index, each in enumerate(signers)}
    shapes = []
    for line in range(0, highest + 1, max(1, highest // 5)):
        y = floor - line * unit
        shapes.append(f'<path stroke="#d5dbe1" d="M{left} {y:.1f}h660"/>')
        shapes.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{line}</text>')
    for monday, bars in sorted(weeks.items()):
        x, y = left + (monday - first).days / 7 * step, float(floor)
        if monday.day <= 7:
            shapes.append(f'<text x="{x:.1f}" y="{floor + 18}">{monday:%B}</text>')
        for signer in [each for each in signers if bars[each]]:
            height = bars[signer] * unit
            y -= height
            title = f"<title>week of {monday}, {escape(signer)}: {bars[signer]}</title>"
            box = f'y="{y:.1f}" width="{step * 0.85:.1f}" height="{height:.1f}"'
            shapes.append(f'<rect x="{x:.1f}" {box} fill="{colours[signer]}">{title}</rect>')
    for index, (signer, colour) in enumerate(colours.items()):
        x = left + index * 100
        shapes.append(f'<circle cx="{x + 6}" cy="20" r="6" fill="{colour}"/>')
        shapes.append(f'<text x="{x + 18}" y="24">{escape(signer)}</text>')
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 280" role="img"',
            f' aria-label="{sum(map(Counter.total, weeks.values()))} records in {count} weeks"',
            ' font-family="system-ui,sans-serif" font-size="12" fill="#1f2933">',
            '<rect width="720" height="280" rx="6" fill="#ffffff"/>',
            *shapes,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    app.run()
