"""Case 3: a peer that claims to be somebody else.

It names the verifier of a peer that the server knows, with a proof that it made up, that was
made by another key, that is the signature of a Seal, or that belongs to another exchange; or
it passes on what the true owner said, from one TLS server to another. Expected: the exchange
ends with "signer without valid proof" before any view is computed, and without a word. A proof
is no signature of a Seal either.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lace.api import SigningKey, open_lace
from lace.base.digest import digest
from lace.errors import RecordError
from lace.exchange.failures import InterlaceFailure
from lace.exchange.hello import PROOF_LABEL, ProofContext, check_proof, make_proof
from lace.facts.lines import format_fact
from lace.record.ids import Signature, Verifier
from lace.record.model import Seal
from lace.record.seal import verify
from tests.cli.links import hashes, plex
from tests.hostile.kit import attacked
from tests.unit.transport.certificates import HERE, make_certificates, make_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.transport.certificates import Certificates

pytestmark = pytest.mark.slow

FORGED = "signer without valid proof"


@pytest.mark.requirement("050-98")
def test_forged_proofs(tmp_path: Path) -> None:
    with attacked(tmp_path) as target:
        victim = Verifier(target.honest.verifier)
        with open_lace(target.honest.folder) as lace:
            key = lace.keys.load()
        assert key.verifier == victim
        own = SigningKey.generate()
        sealed = plex("sealed").seal(key)
        elsewhere = ProofContext(setups=("0" * 43, "0" * 43), plan_id="E." + "0" * 43)
        proofs = [
            make_proof(own, elsewhere, index=0),
            Signature(sealed.signature),
            make_proof(key, elsewhere, index=0),
        ]
        for proof in proofs:
            peer = target.connect()
            hello = peer.meet(key=own, claim=str(victim))
            peer.block(replace(hello, signer=victim, proof=proof).facts)
            assert peer.outcome() == b""
        target.said(FORGED, len(proofs))
        for missing in ("HelloProof", "HelloSigner"):
            peer = target.connect()
            hello = peer.meet(key=own, claim=str(victim))
            peer.block([fact for fact in hello.facts if fact[0] != missing])
            assert peer.outcome() == b""
        target.said("outcome=failed", len(proofs) + 2)
        assert f"peer={victim}" in target.server.errors, "of the honest peer"
        failed = [line for line in target.server.errors.split("\n") if "outcome=failed" in line]
        assert not any(f"peer={victim}" in line for line in failed)


def test_the_same_bytes_signed_as_a_payload_and_as_a_proof() -> None:
    """Only a label keeps the two apart: what is signed for one purpose is nothing for the other."""
    key = SigningKey.generate()
    context = ProofContext(setups=("0" * 43, "1" * 43), plan_id="E." + "0" * 43)
    facts = [
        *(("ProofSetup", str(each), context.setups[each]) for each in (0, 1)),
        ("ProofPlan", context.plan_id),
        ("ProofSigner", "0", str(key.verifier)),
    ]
    text = "".join(f"{format_fact(fact)}\n" for fact in facts).encode()
    proof = make_proof(key, context, index=0, aux=secrets.token_bytes(32))
    as_payload = key.sign(digest(text))
    assert verify(key.verifier, digest(PROOF_LABEL + text), proof), "that is the text"
    assert verify(key.verifier, digest(text), as_payload)
    assert not verify(key.verifier, digest(text), proof)
    signer = str(key.verifier)
    assert check_proof(context, index=0, signer=signer, proof=str(proof)) == signer
    with pytest.raises(InterlaceFailure, match=FORGED):
        check_proof(context, index=0, signer=signer, proof=str(as_payload))


def test_a_proof_in_a_seal_and_a_seal_as_a_proof() -> None:
    """A record whose data is all that a proof hashes still signs something else."""
    key = SigningKey.generate()
    context = ProofContext(setups=("0" * 43, "0" * 43), plan_id="E." + "0" * 43)
    proof = make_proof(key, context, index=0)
    for record in (plex("sealed"), plex("label", PROOF_LABEL + b"ProofSetup")):
        assert not verify(key.verifier, record.id.digest, proof)
        assert not record.bytes.startswith(PROOF_LABEL)
        seal = record.seal(key)
        signature = str(seal.signature)
        with pytest.raises(InterlaceFailure, match=FORGED):
            check_proof(context, index=0, signer=str(key.verifier), proof=signature)
        assert Seal(plex=record, signed_by=key.verifier, signature=signature) == seal
        with pytest.raises(RecordError, match="the signature is not one by"):
            Seal(plex=record, signed_by=key.verifier, signature=proof)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = make_certificates(tmp_path_factory.mktemp("relay"))
    make_server(made, "mallory", HERE)
    return made


def test_a_relay_between_two_tls_servers(tmp_path: Path, pair: Certificates) -> None:
    """Mallory has a good certificate of its own, and passes on what the victim says."""
    files = ("--tls-cert", pair.certificate("server"), "--tls-key", pair.key("server"))
    trusted = ("--ca", pair.certificate("authority"))
    with attacked(tmp_path, *files, address="wss:127.0.0.1:0", more=trusted) as target:
        port = int(target.server.address.partition("/")[0].rpartition(":")[2])
        before = hashes(target.host)
        with open_lace(target.honest.folder) as lace:
            lace.add(plex("through mallory"))
        with relay(pair, port) as own:
            done = target.honest.sync(target.host, f"wss:127.0.0.1:{own}", *trusted)
        assert done.code == 4
        assert "not for this exchange" in done.err or "peer closed early" in done.err
        target.said(FORGED)
        failed = [line for line in target.server.errors.split("\n") if FORGED in line]
        assert all("peer=unproven" in line for line in failed), "no view was computed for anybody"
        assert hashes(target.host) == before


@pytest.mark.requirement("050-98")
def test_only_the_certificate_makes_the_difference(tmp_path: Path, pair: Certificates) -> None:
    """The same relay with the server's own certificate is the channel that was signed.

    So it is ProofChannel, and nothing else about the relay, that the other test fails by.
    """
    files = ("--tls-cert", pair.certificate("server"), "--tls-key", pair.key("server"))
    trusted = ("--ca", pair.certificate("authority"))
    with attacked(tmp_path, *files, address="wss:127.0.0.1:0", more=trusted) as target:
        port = int(target.server.address.partition("/")[0].rpartition(":")[2])
        with open_lace(target.honest.folder) as lace:
            lace.add(plex("through a copy"))
        with relay(pair, port, "server") as own:
            done = target.honest.sync(target.host, f"wss:127.0.0.1:{own}", *trusted, "--json")
        assert done.code == 0, done.err
        assert done.json()["peer-verifier"] == target.host.verifier
        assert hashes(target.host) == hashes(target.honest)


class relay:
    """A TLS server that opens a TLS connection of its own for each, and copies both ways."""

    def __init__(self, certificates: Certificates, port: int, name: str = "mallory") -> None:
        self._certificates, self._port, self._name = certificates, port, name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> int:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _start(self) -> asyncio.Server:
        here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        here.load_cert_chain(
            self._certificates.certificate(self._name), self._certificates.key(self._name)
        )
        return await asyncio.start_server(self._pass_on, "127.0.0.1", 0, ssl=here)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = ssl.create_default_context(cafile=self._certificates.certificate("authority"))
        answers, questions = await asyncio.open_connection("127.0.0.1", self._port, ssl=there)
        await asyncio.gather(_copy(reader, questions), _copy(answers, writer))

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
