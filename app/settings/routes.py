"""Settings of the servers beside the upstream: whose models are theirs, and what they are asked for.

Knows nothing of how a request is sent.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from app.core.wire.models.names import STAR, ModelPattern
from app.settings.fields import Section, setting
from app.settings.headers import AddedHeaders, HeaderValue
from app.settings.models import Endpoint, KeyHeader


class Route(Section):
    """Another upstream for the models a name or pattern matches. The first match in the list counts."""

    match: str = setting(
        ...,
        "Model name, or a pattern with * and ?, compared without regard to case.",
        "A prefix says whose model it is.",
        unit="name or pattern",
        min_length=1,
    )
    model: str | None = setting(
        None,
        "Name this server is asked for; a * in it stands for what the first * of match stands for.",
        'None: as the client sent it. A prefix that only routes is taken off by "*".',
        unit="name",
        min_length=1,
    )
    base_url: Endpoint = setting(
        ...,
        "Base URL of the server that answers these models, with its version path.",
        "Only the operator says where conversations go.",
        unit="URL",
    )
    api_key: HeaderValue | None = setting(
        None,
        "Key sent there in place of the caller's.",
        "None: the caller's own key; then no upstream has one of yours.",
        unit="secret",
    )
    key_header: KeyHeader = setting(
        "bearer",
        "How api_key is sent: as Authorization: Bearer, or as the header api-key.",
        "Azure's own keys go in api-key; everybody else takes a bearer token.",
        unit="bearer or api-key",
    )
    headers: AddedHeaders = setting(
        {},
        "Headers added to every request to this server; those of upstream.headers are not.",
        "What one server needs may be a secret from another.",
        unit="names and values",
    )

    @property
    def models(self) -> ModelPattern:
        """Whose models they are, and what they are called there."""
        return ModelPattern(self.match, self.model)

    @model_validator(mode="after")
    def _star_stands_for_something(self) -> Self:
        if STAR in (self.model or "") and STAR not in self.match:
            raise ValueError("model has a * and match has none that it could stand for")
        return self
