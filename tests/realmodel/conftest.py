"""One real model for all tests of this folder, each of which takes a minute or two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.realmodel.server import model_server


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    with model_server() as url:
        yield url
