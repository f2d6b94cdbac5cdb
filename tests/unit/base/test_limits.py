"""Settings: texts to numbers, ranges, hints and where a value comes from."""

from __future__ import annotations

import dataclasses

import pytest

from lace.base.limits import (
    DEFAULT_SETTINGS,
    MAX_DATA_LENGTH,
    MAX_EXTRA_HEADERS,
    MAX_HEAD_BYTES,
    MAX_LINE_BYTES,
    Settings,
    SettingSource,
    describe_settings,
    parse_setting,
    resolve_settings,
)
from lace.errors import SettingError


def test_the_format_has_these_limits() -> None:
    assert (MAX_LINE_BYTES, MAX_EXTRA_HEADERS) == (1024, 512)
    assert MAX_HEAD_BYTES >= (MAX_EXTRA_HEADERS + 6) * (MAX_LINE_BYTES + 1) + 2 * 55
    assert MAX_DATA_LENGTH == 2**31 - 1
    assert DEFAULT_SETTINGS.max_data_bytes == 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1024", 1024),
        (" 1024 ", 1024),
        ("7B", 7),
        ("1KB", 1000),
        ("1kb", 1000),
        ("1KiB", 1024),
        ("64MiB", 64 << 20),
        ("64 MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("0.5GiB", 1 << 29),
        ("1.125KiB", 1152),
        ("0.0001KiB", None),
        ("900MiB", 900 << 20),
        ("901MiB", None),
        ("-1", None),
        ("+5", None),
        ("1_000", None),
        ("\u0661", None),
        ("1.5", None),
        ("1e3", None),
        ("", None),
        ("MiB", None),
        ("64 MiB\n.", None),
        ("1TB", None),
        ("1\u212aiB", None),
        ("1k\u0131b", None),
        ("1K\u0130B", None),
        ("1234567890123456789", None),
    ],
)
def test_sizes(text: str, number: int | None) -> None:
    if number is None:
        with pytest.raises(SettingError) as caught:
            parse_setting("max_data_bytes", text)
        assert "max_data_bytes" in caught.value.message
    else:
        assert parse_setting("max_data_bytes", text) == number


@pytest.mark.parametrize("value", ["10 KB", "1KiB", "7B", True, False, 1.5, None, "ten"])
def test_a_count_is_a_whole_number_without_a_unit(value: object) -> None:
    with pytest.raises(SettingError, match="whole number"):
        parse_setting("wait_seconds", value)


def test_numbers_are_taken_as_they_are() -> None:
    assert parse_setting("wait_seconds", 0) == 0
    assert parse_setting("wait_seconds", "12") == 12


@pytest.mark.parametrize(("value", "name"), [(-1, "wait_seconds"), (86_401, "wait_seconds")])
def test_a_range_is_named_with_what_the_setting_is_for(value: int, name: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting(name, value)
    assert f"{name}={value} is outside 0 to 86400" in caught.value.message
    assert caught.value.hint == "it is: how long a writer waits for another process"


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    with pytest.raises(SettingError) as caught:
        parse_setting("max_data_byte", 1)
    assert caught.value.hint == "did you mean max_data_bytes?"
    with pytest.raises(SettingError) as caught:
        parse_setting("zzz", 1)
    assert caught.value.hint == "`lace config show` lists all settings"


def test_the_constructor_refuses_what_is_out_of_range() -> None:
    with pytest.raises(SettingError, match="outside"):
        Settings(max_data_bytes=-1)
    with pytest.raises(SettingError, match="whole number"):
        Settings(wait_seconds=True)
    with pytest.raises(SettingError, match="whole number"):
        Settings(wait_seconds="5")  # type: ignore[arg-type]  # what a careless caller may do
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_SETTINGS.wait_seconds = 5  # type: ignore[misc]  # frozen, which is the point


def test_names_that_a_setting_does_not_take_are_refused() -> None:
    with pytest.raises(SettingError) as caught:
        resolve_settings([SettingSource("lace.toml", {"record_formats": ["H3", "H9"]})])
    assert caught.value.message == (
        "lace.toml: setting record_formats: each of the suffixes must be one of H3, got 'H9'"
    )
    with pytest.raises(SettingError, match="one of H3"):
        Settings(record_formats=("H9",))
    assert parse_setting("offer_fields", "Any Thing") == ("Any", "Thing")


def test_later_sources_win_and_origins_are_known() -> None:
    settings, origins = resolve_settings(
        [
            SettingSource("lace.toml", {"wait_seconds": 1, "max_data_bytes": "1MiB"}),
            SettingSource("--set", {"wait_seconds": "2"}),
        ]
    )
    assert (settings.wait_seconds, settings.max_data_bytes) == (2, 1 << 20)
    assert origins["wait_seconds"] == "--set"
    assert origins["max_data_bytes"] == "lace.toml"
    assert origins["import_workers"] == "default"
    assert resolve_settings([]) == (DEFAULT_SETTINGS, dict.fromkeys(origins, "default"))


def test_an_error_says_which_source_it_is_in() -> None:
    with pytest.raises(SettingError) as caught:
        resolve_settings([SettingSource("lace.toml", {"wait_second": 1})])
    assert str(caught.value) == (
        "lace.toml: there is no setting 'wait_second'; did you mean wait_seconds?"
    )


def test_every_setting_is_described() -> None:
    described = describe_settings()
    assert [name for name, *_ in described] == [
        field.name for field in dataclasses.fields(Settings)
    ]
    assert all(meaning for _, meaning, _ in described)
