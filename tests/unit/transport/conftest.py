"""Certificates, made once."""

from __future__ import annotations

import shutil

import pytest

from tests.unit.transport.certificates import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make certificates with")
    return make_certificates(tmp_path_factory.mktemp("certificates"))
