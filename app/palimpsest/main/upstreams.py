"""Opens the default upstream, those of `routes`, and the servers that write summaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from palimpsest.core.wire.credentials import CredentialNames
from palimpsest.errors import SettingsError
from palimpsest.proxy.destinations import Destination, Destinations, Outgoing
from palimpsest.settings.settings import Settings
from palimpsest.settings.upstreams import KeyHeader, Route, UpstreamSettings
from palimpsest.upstream.client import Upstream, trust_of
from palimpsest.upstream.headers import UpstreamKey
from palimpsest.upstream.summarizer import Summarizer, Summarizers, Worker


async def opened_destinations(settings: Settings, stack: AsyncExitStack) -> Destinations:
    """Open every upstream, with its key and headers; `stack` closes them."""
    default = await _opened(settings, settings.upstream, stack)
    routed = []
    for route in settings.routes:
        there = await _opened(settings, route, stack)
        routed.append(replace(there, models=route.models))
    return Destinations(default, routed)


async def opened_summarizers(
    settings: Settings, destinations: Destinations, stack: AsyncExitStack
) -> Summarizers:
    """Summarizers by model: each model's summaries are written by the upstream that answers for it.

    Or by one server that writes all of them, and is never sent callers' keys. `stack` closes it.
    """
    chosen, names = settings.summarizer, credential_names(settings)
    own = key_of(chosen.api_key, chosen.key_header)
    if chosen.base_url is not None:
        other = await stack.enter_async_context(Upstream(chosen.base_url, settings.upstream))
        return Summarizers(Summarizer(other, key=own, is_foreign=True))
    own = own or key_of(settings.upstream.api_key, settings.upstream.key_header)
    routed = []
    for route, there in zip(settings.routes, destinations.routed, strict=True):
        key = key_of(route.api_key, route.key_header)
        routed.append((route.models, Summarizer(there.upstream, key=key, names=names)))
    return Summarizers(Summarizer(destinations.of("").upstream, key=own, names=names), routed)


async def opened_worker(settings: Settings, stack: AsyncExitStack) -> Worker | None:
    """The server that compacts instead of us, if one is set; `stack` closes it."""
    chosen = settings.summarizer
    if chosen.worker_url is None:
        return None
    pool = await stack.enter_async_context(Upstream(chosen.worker_url, settings.upstream))
    key = UpstreamKey(chosen.worker_key.get_secret_value()) if chosen.worker_key else None
    return Worker(pool, chosen.worker_url, key)


async def _opened(settings: Settings, given: UpstreamSettings | Route, stack: AsyncExitStack) -> Destination:
    how = settings.upstream
    with _authorities_of(how.ca_bundle):
        upstream = await stack.enter_async_context(Upstream(given.base_url or "", how, given.headers))
    key = key_of(given.api_key, given.key_header)
    return Destination(
        upstream,
        Outgoing(key, keeps_credentials=settings.access.mode == "open", names=credential_names(settings)),
    )


def check_authorities(ca_file: Path) -> None:
    """SettingsError when the file is no list of authorities."""
    with _authorities_of(ca_file):
        trust_of(ca_file)


@contextmanager
def _authorities_of(ca_file: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Also an existing file without certificates.
        raise SettingsError(
            f"upstream.ca_bundle: {ca_file} cannot be read as a PEM file"
            f" ({error.strerror or 'no certificate in it'})."
        ) from error


def credential_names(settings: Settings) -> CredentialNames:
    """The names that count as credentials; headers that name a session or a user are excluded."""
    who = settings.access
    naming = (*settings.sessions.headers, *who.identity_headers)
    return CredentialNames(who.credential_headers, who.credential_query, (*who.not_credentials, *naming))


def key_of(secret: SecretStr | None, scheme: KeyHeader) -> UpstreamKey | None:
    """An operator's key as it is sent; None without one."""
    return UpstreamKey(secret.get_secret_value(), scheme) if secret else None
