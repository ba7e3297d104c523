"""Two servers on one database agree whose a credential is, also when one has erased who never was let in."""

from __future__ import annotations

from pathlib import Path

import pytest
from palimpsest.proxy.access import Access
from palimpsest.proxy.incoming import Incoming
from palimpsest.proxy.jobs import Jobs
from palimpsest.proxy.server_secrets import load_pepper
from palimpsest.settings.serving import AccessSettings
from palimpsest.storage.store import open_store

from tests.storage.conftest import new_id
from tests.storage.talk import Talk


def knocking() -> Incoming:
    """A request with a key."""
    return Incoming("POST", "/chat/completions", ((b"authorization", b"Bearer me"),), b"", None)


@pytest.mark.spec("P5")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_a_namespace_that_one_has_swept_is_begun_anew_by_both(url: str, tmp_path: Path) -> None:
    stores = [await open_store(url, new_id=new_id, sole=True) for _ in range(2)]
    pepper = load_pepper(tmp_path / "pepper", None)
    one, two = (Access(store.accounts, Jobs(), pepper, AccessSettings()) for store in stores)
    swept = (await one.caller_of(knocking())).namespace
    assert (await two.caller_of(knocking())).namespace == swept
    assert await stores[0].erasure.unproven(1e12) == [swept]
    one.forget([swept])
    begun = (await one.caller_of(knocking())).namespace
    assert begun != swept
    assert (await two.caller_of(knocking())).namespace == begun
    await Talk(stores[1], namespace=begun).turns(1)
    assert (await two.caller_of(knocking())).namespace == begun
    for store in stores:
        await store.close()
