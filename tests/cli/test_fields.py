"""`--field` and `--all-fields`: which fields `serve` and `sync` offer, and what tells it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from lace.api import open_lace
from lace.record.model import Plex
from tests.cli.links import make_parties, serving
from tests.cli.running import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.links import Party

TOPIC = (
    "SelectHave(P) :- Have(P).\n"
    "SelectAdvertised(P,S) :- Advertised(P,S), AdvertisedField(P,S,'Topic',_,_).\n"
)
ANY = "tcp:127.0.0.1:0"


def write_topic(folder: Path) -> Path:
    """Write a selector that reads the field `Topic`."""
    path = folder / "topic.lace"
    path.write_text(TOPIC)
    return path


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Party, Party]:
    made = make_parties(tmp_path)
    for each in made:
        with open_lace(each.folder) as lace:
            headers = [("Topic", f"a topic of {each.folder.name}"), ("Other", "else")]
            lace.add(Plex(group="u", app="n", name=each.folder.name, data=b"x", headers=headers))
    return made


def names(capture: Path, direction: str) -> set[str]:
    """The fields that one direction of a capture advertises."""
    lines = [line for line in capture.read_text().splitlines() if line.startswith(direction)]
    return set(re.findall(r"AdvertisedField\('[^']+','[^']+','([^']+)'", "\n".join(lines)))


@pytest.mark.requirement("040-106", "050-123")
def test_fields_on_both_command_lines(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    capture = tmp_path / "wire"
    with serving(right, left, ANY, "--field", "Topic", "--field", "Group") as server:
        done = left.sync(right, server.address, "--all-fields", "--capture", capture)
        assert done.code == 0, done.err
    assert names(capture, "<") == names(capture, ">") == {"Group", "Topic"}
    assert "Other" not in re.findall(r"AdvertisedField\S+", capture.read_text())


@pytest.mark.requirement("040-106", "050-130", "050-214")
def test_a_peers_selector_asks_for_a_field_that_is_not_offered(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    topic = write_topic(tmp_path)
    capture = tmp_path / "wire"
    with serving(right, left, ANY) as server:
        done = left.sync(right, server.address, "--select", topic, "--capture", capture)
        assert done.code == 4
        assert "the plan needs Topic, which the peer does not offer [050-130]" in done.err
        assert "a topic of right" not in capture.read_text()
    with serving(right, left, ANY, "--field", "Topic") as server:
        done = left.sync(right, server.address, "--select", topic)
        assert done.code == 0, done.err


def test_fields_of_a_peer_and_of_lace_toml(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    capture = tmp_path / "wire"
    with serving(right, left, ANY, "--all-fields") as server:
        table = (
            'offer_fields = ["Group"]\n[peer.office]\n'
            f'address = "{server.address}"\nselect = "{left.select}"\n'
            f'expose = ["{left.view}@{right.verifier}"]\n'
        )
        for line, more, expected in (
            ("", (), {"Group"}),
            ('field = ["Topic"]\nformat = ["H3"]\n', (), {"Topic"}),
            ("all-fields = true\n", ("--field", "Name"), {"Name"}),
        ):
            (left.folder / "lace.toml").write_text(table + line)
            with open_lace(left.folder) as lace:
                new = [("Topic", "new")]
                lace.add(Plex(group="u", app="n", name=f"n/{len(line)}", data=b"x", headers=new))
            asked = ("--lace", left.folder, "--capture", capture, *more)
            done = call("sync", "office", *asked)
            assert done.code == 0, done.err
            assert names(capture, ">") == expected
            capture.unlink()
    (left.folder / "lace.toml").write_text(table + 'format = ["H4"]\n')
    done = call("sync", "office", "--lace", left.folder)
    assert "one that stores can hold" in done.err
    shown = call("config", "show", "offer_fields", "--lace", left.folder, "--json")
    assert json.loads(shown.raw)["settings"][0]["value"] == ["Group"]
    assert call("config", "show", "offer_fields", "--lace", left.folder).lines[0].split("\t")[
        1
    ] == ("Group")


@pytest.mark.requirement("040-106", "050-123")
def test_remote_operations_offer_what_a_table_and_the_command_line_name(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    topic = write_topic(tmp_path)
    with open_lace(left.folder) as lace:
        (mine,) = (str(each.id) for each in lace.records("//u//n//left") if each.name == "left")
    with serving(right, left, ANY, "--select", topic) as server:
        table = f'[peer.office]\naddress = "{server.address}"\n'
        for line, more, expected in (
            ("", (), 4),
            ('field = ["Topic"]\nformat = ["H3"]\n', (), 0),
            ("", ("--field", "Topic"), 0),
            ("", ("--all-fields",), 0),
            ('field = ["Topic"]\n', ("--field", "Group"), 4),
        ):
            (left.folder / "lace.toml").write_text(table + line)
            done = call("remote", "store", "office", mine, "--lace", left.folder, *more)
            assert done.code == expected, (line, more, done.err)
    (left.folder / "lace.toml").write_text(table + 'field = ["Topic"]\n')
    refused = call("remote", "list", "office", "--lace", left.folder)
    assert refused.code == 1
    assert "the selector reads the advertised field App" in refused.err


def test_wrong_usage(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    both = left.sync(right, "tcp:127.0.0.1:1", "--field", "Group", "--all-fields")
    assert both.code == 2
    assert "--field and --all-fields" in both.err
    topic = write_topic(tmp_path)
    lacking = left.sync(right, "tcp:127.0.0.1:1", "--select", topic, "--field", "Group")
    assert lacking.code == 1
    assert "the selector reads the advertised field Topic" in lacking.err


@pytest.mark.requirement("040-106")
def test_preview_and_disclose_show_it(parties: tuple[Party, Party], tmp_path: Path) -> None:
    left, right = parties
    topic = write_topic(tmp_path)
    asked = ("--lace", left.folder, "--viewer", right.verifier, "--peer-select", topic)
    exposed = ("--expose", f"{left.view}@{right.verifier}")
    preview = ("preview", "--select", left.select, *asked, *exposed)
    found = json.loads(call(*preview, "--json").raw)["offer"]
    assert found == {
        "fields": [],
        "all_fields": False,
        "formats": ["H3"],
        "unmet_fields": ["Topic"],
        "needs_all_fields": False,
    }
    assert "needs the advertised field Topic, which you do not offer" in call(*preview).err
    met = call(*preview, "--field", "Topic", "--json")
    assert json.loads(met.raw)["offer"]["fields"] == ["Topic"]
    assert "you do not offer" not in met.err
    disclose = ("disclose", *asked, *exposed)
    told = call(*disclose)
    assert "which you do not offer" in told.err
    assert "offer\tTopic" in call(*disclose, "--field", "Topic").lines
    assert "offer\t*" in call(*disclose, "--all-fields").lines
    saved = tmp_path / "saved.json"
    saved.write_bytes(call(*disclose, "--json").raw)
    change = call(*disclose, "--field", "Topic", "--baseline", saved)
    assert change.code == 1
    assert change.lines == ["+\toffer\tTopic"]


@pytest.mark.requirement("050-130", "050-131")
def test_the_setting_is_held_against_ones_own_selector(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    left, right = parties
    topic, every = tmp_path / "topic.lace", tmp_path / "every.lace"
    topic.write_text(TOPIC)
    every.write_text(TOPIC.replace("'Topic'", "_"))
    (left.folder / "lace.toml").write_text('offer_fields = ["Group"]\n')
    on, none = ("--lace", left.folder), "tcp:127.0.0.1:1"
    asked = ("--viewer", right.verifier, "--peer-select", left.select, "--expose", left.view)
    for select, told in (
        (topic, "the selector reads the advertised field Topic"),
        (every, "by va"),
    ):
        for refused in (
            call("serve", ANY, "--select", select, *on),
            call("sync", none, "--select", select, *on),
            call("remote", "watch", none, "--select", select, *on),
            call("preview", "--select", select, *asked, *on),
            call("disclose", "--select", select, *asked, *on),
        ):
            assert refused.code == 1, refused.err
            assert told in refused.err
            assert "the peer's selector" not in refused.err
    asked = ("--viewer", right.verifier, "--select", left.select, "--expose", left.view)
    warned = call("preview", "--peer-select", every, *asked, *on)
    assert "the peer's selector reads fields by variables" in warned.err
