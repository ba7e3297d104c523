from __future__ import annotations

import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from palimpsest.errors import UpstreamUnreachable
from palimpsest.upstream.client import Upstream
from palimpsest.upstream.http import fetch

from tests.upstream.asking import at
from tests.upstream.scripted import Scripted, replies

REQUEST = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=upstream -addext subjectAltName=IP:127.0.0.1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        *REQUEST.split(),
        "-keyout",
        str(folder / "key.pem"),
        "-out",
        str(folder / "cert.pem"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture
def secure(certificate: Path) -> Callable[[], Scripted]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return lambda: Scripted(context)


async def via_open(upstream: Upstream) -> bytes:
    async with upstream.open("POST", "/chat", [], b"{}") as answer:
        return await answer.read(100)


async def via_fetch(upstream: Upstream) -> bytes:
    return (await fetch(upstream, "/models", [], 100)).body


@pytest.mark.parametrize("ask", [via_open, via_fetch])
async def test_the_given_authority_is_trusted(
    secure: Callable[[], Scripted], certificate: Path, ask: Callable[[Upstream], Awaitable[bytes]]
) -> None:
    async with secure() as server:
        server.always(replies(b"ok"))
        async with at(server.url, ca_bundle=certificate) as upstream:
            assert await ask(upstream) == b"ok"
            # The second rides on the same connection.
            assert await ask(upstream) == b"ok"
    assert server.connections == 1


async def test_an_unknown_authority_is_not(secure: Callable[[], Scripted]) -> None:
    async with secure() as server, at(server.url) as upstream:
        with pytest.raises(UpstreamUnreachable, match="certificate"):
            await via_open(upstream)
        with pytest.raises(UpstreamUnreachable):
            await via_fetch(upstream)
    assert server.requests == []
