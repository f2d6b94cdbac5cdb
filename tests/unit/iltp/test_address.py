"""Address strings: every form, and every refusal with the hint that it gives."""

from __future__ import annotations

import pytest

from lace.iltp.address import MAX_UNIX_PATH_BYTES, LinkAddress, LinkAddressError, parse_address

PATH = "/interlace"


@pytest.mark.parametrize(
    ("text", "address", "shown", "port"),
    [
        ("stdio", LinkAddress(scheme="stdio"), "", None),
        ("unix:/tmp/lace.sock", LinkAddress(scheme="unix", path="/tmp/lace.sock"), "", None),
        ("unix:/ä:b?c#d", LinkAddress(scheme="unix", path="/ä:b?c#d"), "", None),
        ("unix:/tmp/my socket", LinkAddress(scheme="unix", path="/tmp/my socket"), "", None),
        ("unix:/ a\xa0b\u3000 ", LinkAddress(scheme="unix", path="/ a\xa0b\u3000 "), "", None),
        ("tcp:127.0.0.1:4790", LinkAddress(scheme="tcp", host="127.0.0.1", port=4790), "", 4790),
        (
            "tcp:example.com:9000",
            LinkAddress(scheme="tcp", host="example.com", port=9000),
            "",
            9000,
        ),
        ("tcp:a_b-c", LinkAddress(scheme="tcp", host="a_b-c", port=4790), "tcp:a_b-c:4790", 4790),
        ("tcp:[::1]:4790", LinkAddress(scheme="tcp", host="::1", port=4790), "", 4790),
        ("tcp:[::1]", LinkAddress(scheme="tcp", host="::1", port=4790), "tcp:[::1]:4790", 4790),
        ("tcp:h:65535", LinkAddress(scheme="tcp", host="h", port=65535), "", 65535),
        ("ws:h", LinkAddress(scheme="ws", host="h", path=PATH), "ws:h/interlace", 80),
        (
            "ws:h:80",
            LinkAddress(scheme="ws", host="h", port=80, path=PATH),
            "ws:h:80/interlace",
            80,
        ),
        ("ws:[::1]:1/interlace", LinkAddress(scheme="ws", host="::1", port=1, path=PATH), "", 1),
        ("wss:h/interlace", LinkAddress(scheme="wss", host="h", path=PATH), "", 443),
        ("wss:[::2]", LinkAddress(scheme="wss", host="::2", path=PATH), "wss:[::2]/interlace", 443),
    ],
)
def test_forms(text: str, address: LinkAddress, shown: str, port: int | None) -> None:
    found = parse_address(text)
    assert found == address
    assert str(found) == found.transport_text == (shown or text)
    assert parse_address(str(found)) == found
    assert found.effective_port == port
    assert found.is_ipv6 == ("[" in text)


def test_the_longest_host() -> None:
    """As long as a name may be (253 characters), and no longer."""
    host = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
    assert parse_address(f"tcp:{host}:1").host == host
    assert len(host) == 253
    with pytest.raises(LinkAddressError, match="is no host"):
        parse_address(f"tcp:{host}d:1")


def test_port_0_is_for_serving() -> None:
    assert parse_address("tcp:h:0", for_serving=True).effective_port == 0
    assert parse_address("ws:[::]:0", for_serving=True).effective_port == 0
    with pytest.raises(LinkAddressError, match="1 to 65535"):
        parse_address("tcp:h:0")


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("", "060-01", "write one of stdio, unix:/absolute/path"),
        ("x" * 513, "060-01", "write one of"),
        (" stdio", "060-01", "may have spaces"),
        (" unix:/tmp/a", "060-01", "may have spaces"),
        ("tcp:a b:1", "060-01", "may have spaces"),
        ("ws:a b", "060-01", "may have spaces"),
        ("unix:/a\n", "060-01", "no address has control characters"),
        ("unix:/a\tb", "060-01", "no address has control characters"),
        ("unix:/a\x85", "060-01", "no address has control characters"),
        ("unix:/a\u2028b", "060-01", "no address has control characters"),
        ("tcp:\ud800:1", "060-01", "no address has control characters"),
        ("stdio:", "060-02", "write stdio alone"),
        ("STDIO", "060-01", "tcp:STDIO:4790"),
        ("stdio://", "060-02", "write stdio alone"),
        ("Stdio:x", "060-01", "write stdio"),
        ("localhost:80", "060-01", "write tcp:localhost:80"),
        ("example.com", "060-01", "write tcp:example.com:4790"),
        ("/tmp/a", "060-01", "write unix:/tmp/a"),
        ("?", "060-01", "write one of"),
        ("ftp:x", "060-01", "write one of"),
        ("TCP:h:1", "060-01", "write tcp:h:1"),
        ("https://h/x?y", "060-01", "write wss:h/interlace"),
        ("http://u@h:8", "060-01", "write ws:h:8/interlace"),
        ("http://", "060-01", "write ws:host"),
        ("Unix:/a", "060-01", "write unix:/a"),
        ("Unix:", "060-01", "write unix:/absolute/path"),
        ("unix:a/b", "060-03", "write unix:/absolute/path"),
        ("unix:", "060-03", "write unix:/absolute/path"),
        ("unix:@abstract", "060-03", "write unix:/absolute/path"),
        ("unix:///tmp/a", "060-03", "write unix:/tmp/a"),
        ("unix:/tmp/", "060-03", "write unix:/absolute/path"),
        ("unix:/" + "a" * 107, "060-03", "a shorter one"),
        ("unix:/" + "ä" * 54, "060-03", "a shorter one"),
        ("unix:/e\u0301", "060-03", "choose another path"),
        ("tcp://h:1", "060-04", "write tcp:h:1"),
        ("tcp:h:1/interlace", "060-04", "write tcp:h:1"),
        ("tcp:h:1?x", "060-04", "write tcp:h:1"),
        ("tcp:/", "060-04", "write tcp:host:port"),
        ("tcp:", "060-07", "write tcp:host:port"),
        ("tcp::4790", "060-07", "0.0.0.0"),
        ("tcp:::1", "060-07", "in brackets"),
        ("tcp:2001:db8::1", "060-07", "in brackets"),
        ("tcp:[::1", "060-07", "tcp:[::1]:4790"),
        ("tcp:[::1]4790", "060-07", "tcp:[::1]:4790"),
        ("tcp:[127.0.0.1]:1", "060-07", "tcp:[::1]:4790"),
        ("tcp:[fe80::1%eth0]:1", "060-07", "tcp:[::1]:4790"),
        ("tcp:[]:1", "060-07", "tcp:[::1]:4790"),
        ("tcp:ä.example:1", "060-07", "xn--"),
        ("tcp:-a:1", "060-07", "write tcp:host:port"),
        ("tcp:a..b:1", "060-07", "write tcp:host:port"),
        ("tcp:a.:1", "060-07", "write tcp:host:port"),
        ("tcp:" + "a" * 64, "060-07", "write tcp:host:port"),
        ("tcp:" + "a." * 127 + "b", "060-07", "write tcp:host:port"),
        ("tcp:1.2.3:1", "060-07", "four numbers"),
        ("tcp:1.2.3.256:1", "060-07", "four numbers"),
        ("tcp:01.2.3.4:1", "060-07", "four numbers"),
        ("tcp:0x7f000001:1", "060-07", "four numbers"),
        ("tcp:2130706433:1", "060-07", "four numbers"),
        ("tcp:h:", "060-08", "1 to 65535"),
        ("tcp:h:080", "060-08", "1 to 65535"),
        ("tcp:h:+80", "060-08", "1 to 65535"),
        ("tcp:h:8_0", "060-08", "1 to 65535"),
        ("tcp:h:\uff18\uff10", "060-08", "1 to 65535"),
        ("tcp:h:65536", "060-08", "1 to 65535"),
        ("tcp:h:100000", "060-08", "1 to 65535"),
        ("tcp:[::1]:", "060-08", "left out, it is 4790"),
        ("wss:h:x", "060-08", "left out, it is 443"),
        ("ws://h:8/interlace", "060-12", "write ws:h:8/interlace"),
        ("wss://h", "060-12", "write wss:h/interlace"),
        ("ws://", "060-12", "write ws:host[:port][/interlace]"),
        ("ws:h/interlace?x", "060-11", "write ws:h/interlace"),
        ("ws:u@h", "060-11", "write ws:h/interlace"),
        ("ws:h/interlace#x", "060-11", "write ws:h/interlace"),
        ("ws:h/", "060-10", "write ws:h/interlace"),
        ("ws:h:1/other", "060-10", "write ws:h:1/interlace"),
        ("ws:h/interlace/", "060-10", "write ws:h/interlace"),
        ("ws:", "060-07", "write ws:host"),
    ],
)  # fmt: skip
def test_refusals(text: str, rule: str, hint: str) -> None:
    with pytest.raises(LinkAddressError) as caught:
        parse_address(text)
    assert caught.value.rule == rule
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2
    assert str(caught.value).isprintable()


def test_an_address_that_has_a_port_is_not_given_another() -> None:
    with pytest.raises(LinkAddressError) as caught:
        parse_address("127.0.0.1:4790")
    assert caught.value.hint == "write tcp:127.0.0.1:4790"


@pytest.mark.requirement("060-03")
@pytest.mark.parametrize("character", ["x", "é"])
def test_the_longest_path_of_a_socket(character: str) -> None:
    size = len(character.encode())
    longest = "/" + character * ((MAX_UNIX_PATH_BYTES - 1) // size)
    longest += "x" * (MAX_UNIX_PATH_BYTES - len(longest.encode()))
    assert parse_address(f"unix:{longest}").path == longest
    with pytest.raises(LinkAddressError):
        parse_address(f"unix:{longest}x")
