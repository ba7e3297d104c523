"""Callers (rule 26): the namespace of a request, and limits on unproven namespaces.

A namespace is proven once the upstream has accepted its credential. Until then it may store little, because
anybody can invent a key. A caller can read and write only its own namespace. Its credential is stored only as
a keyed digest, and never logged or put into an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from palimpsest.core.wire.credentials import (
    FIRST_HEADERS,
    USUAL_NAMES,
    CredentialNames,
    bearer_token,
    key_digest,
)
from palimpsest.errors import AdminKeyRefused, NamespaceUnproven, StoreError, Unauthorized
from palimpsest.proxy.incoming import Headers, Incoming
from palimpsest.proxy.jobs import Jobs, logged
from palimpsest.proxy.quotas import Quota, quota_of
from palimpsest.proxy.server_secrets import AdminKey, Pepper
from palimpsest.settings.serving import AccessSettings
from palimpsest.storage.accounts import Accounts, KeyRow
from palimpsest.storage.database import Recent
from palimpsest.storage.store import Store

# Sweeps within the lifetime of an unproven namespace.
SWEEPS = 4
_log = structlog.get_logger("palimpsest.newcomers")


# Made-up keys must not fill the disk; an hour covers an outage of the upstream (rule 26).
UNPROVEN_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class UnprovenNamespaces:
    """Limits namespaces whose credential the upstream has not accepted yet.

    Each may store `messages` messages and is erased after `seconds`. `erased` is called with the namespaces
    of each sweep. `clock` gives UTC seconds.
    """

    store: Store
    erased: Callable[[Sequence[str]], None]
    clock: Callable[[], float]
    messages: int
    seconds: int = UNPROVEN_SECONDS

    async def admit(self, namespace: str, new_messages: int) -> None:
        """Check that the namespace may store `new_messages` more; NamespaceUnproven beyond its limit.

        The first request is admitted whatever its length: a client may bring a long history.
        """
        status = await self.store.accounts.status(namespace)
        if status.proven or not status.messages or not new_messages:
            return
        if status.messages + new_messages > self.messages:
            raise NamespaceUnproven(
                "The upstream has not accepted this credential yet; until then no more is stored."
            )

    async def keep_sweeping(self) -> None:
        """Sweep periodically until cancelled."""
        while True:
            await asyncio.sleep(self.seconds / SWEEPS)
            await self.sweep()

    async def sweep(self) -> None:
        """Erase the namespaces that are still unproven after `seconds`; a store error is logged."""
        with logged(_log, "sweep_failed"):
            while gone := await self.store.erasure.unproven(self.clock() - self.seconds):
                self.erased(gone)
                _log.info("unproven_erased", namespaces=len(gone))


_FIRST_HEADERS = tuple(name.encode() for name in FIRST_HEADERS)
# Credentials cached per process: a digest and a namespace id take about 200 bytes.
REMEMBERED = 10_000
# A revoked proxy key may keep working in this process for at most this many seconds: with the second between
# two reads of a stream of events these are the five that are promised.
KEY_SECONDS = 4.0
# The use of a key is stored at most so often, in seconds.
USE_SECONDS = 60.0
_keys_log = structlog.get_logger("palimpsest.keys")


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller; `quota` None: unlimited."""

    namespace: str
    quota: Quota | None = None


class Access:
    """Finds the namespace and the quota of a request.

    All credentials of a request together identify the caller, because one header may hold a placeholder that
    every client sends beside the real key. `names` lists the headers and parameters that are credentials.
    `admin_key` is nobody's here: a request with it is refused, since it would go upstream.
    """

    def __init__(
        self,
        accounts: Accounts,
        jobs: Jobs,
        pepper: Pepper,
        rules: AccessSettings,
        admin_key: AdminKey | None = None,
        names: CredentialNames = USUAL_NAMES,
    ) -> None:
        self._accounts = accounts
        self._jobs = jobs
        self._pepper = pepper
        self._realm = rules.realm
        self._proxy_keys = rules.mode == "keys"
        self._daily_tokens = rules.daily_tokens
        self._admin_key = admin_key
        self._names = names
        self._identity_headers = tuple(name.lower().encode("latin-1") for name in rules.identity_headers)
        self._known: Recent[bytes, tuple[Caller, float]] = Recent(REMEMBERED)
        # By a valid key's id, when its use was stored.
        self._used: dict[str, float] = {}

    async def caller_of(self, incoming: Incoming) -> Caller:
        """The caller; Unauthorized when proxy keys are required and none is valid."""
        return await self._caller_at(self.digest_of(incoming), incoming)

    async def _caller_at(self, digest: bytes, incoming: Incoming) -> Caller:
        now = time.monotonic()
        remembered = self._known.get(digest)
        if remembered is not None and now < remembered[1]:
            return remembered[0]
        at, seconds, key = time.time(), float("inf"), None
        if self._proxy_keys:
            key = await self._key(incoming, at)
            namespace, identity = key.namespace, self._identity_of(incoming)
            if any(identity):
                narrowed = self._pepper.digest_of(namespace, *identity)
                namespace = await self._accounts.namespace_of(narrowed, at)
            seconds = KEY_SECONDS if key.expires_at is None else min(KEY_SECONDS, key.expires_at - at)
        else:
            namespace = await self._accounts.namespace_of(digest, at)
        caller = Caller(namespace, quota_of(namespace, self._daily_tokens, key))
        # An unproven namespace is not cached: another server on the same database may erase it.
        if (await self._accounts.status(caller.namespace)).proven:
            self._known[digest] = (caller, now + seconds)
        return caller

    async def still_admits(self, incoming: Incoming, namespace: str) -> bool:
        """True while the request's credentials open the namespace: its key may expire, or be revoked.

        False, too, while the database cannot tell. Whoever reads more than once for one request asks before
        each further read.
        """
        try:
            return (await self.caller_of(incoming)).namespace == namespace
        except (Unauthorized, StoreError):
            return False

    async def known_namespace(
        self, incoming: Incoming, digest: bytes, *, asks_store: bool = False
    ) -> str | None:
        """The namespace of the caller with this `digest_of` if it is known to be proven, else None.

        With proxy keys: the namespace of a valid key, else Unauthorized. Without `asks_store` only the cache
        is consulted.
        """
        if self._proxy_keys:
            return (await self._caller_at(digest, incoming)).namespace
        if asks_store:
            await self._caller_at(digest, incoming)
        remembered = self._known.get(digest)
        return remembered[0].namespace if remembered is not None else None

    async def admit(self, incoming: Incoming) -> Quota | None:
        """Check the credentials of a request that is not recorded; without proxy keys any are accepted.

        Returns the caller's quota.
        """
        if self._proxy_keys or self._daily_tokens:
            return (await self.caller_of(incoming)).quota
        first_credentials(incoming)
        return None

    def credentials_of(self, incoming: Incoming) -> Headers:
        """The caller's credential headers, for requests that the proxy sends on its behalf."""
        return self._names.only(incoming.headers)

    def is_expected_field(self, name: str) -> bool:
        """True for the name of a query field that is a credential, or was declared to be none."""
        return self._names.is_expected(name)

    def forget(self, namespaces: Sequence[str]) -> None:
        """Drop erased namespaces from the cache; their credentials get new namespaces."""
        gone = frozenset(namespaces)
        for digest in [digest for digest, (caller, _) in self._known.items() if caller.namespace in gone]:
            del self._known[digest]

    def digest_of(self, incoming: Incoming) -> bytes:
        """Tells callers apart. RepeatedHeader when one of the usual credentials stands twice.

        AdminKeyRefused for a request with the admin key, wherever it stands in headers or query.
        """
        if incoming.credentials:
            return incoming.credentials
        if self._admin_key is not None and self._admin_key.is_in(incoming.headers, incoming.target):
            raise AdminKeyRefused(
                "This is the admin key, for /api/admin alone; it was sent no further. Send a caller's own key"
                " here."
            )
        first, identity = first_credentials(incoming), self._identity_of(incoming)
        # Appended last: callers that send only the first release's headers keep their namespaces.
        further = self._names.further(incoming.headers, incoming.target)
        return self._pepper.digest_of(self._realm, *first, *identity, *further)

    def _identity_of(self, incoming: Incoming) -> tuple[str, ...]:
        return tuple([incoming.only(name) or "" for name in self._identity_headers])

    async def _key(self, incoming: Incoming, now: float) -> KeyRow:
        """The valid key that the request presents; that it was used is stored in the background."""
        further = self._names.values(incoming.headers, incoming.target)
        presented = next(filter(None, (*first_credentials(incoming), *further)), "")
        key = await self._accounts.key_of(key_digest(bearer_token(presented)))
        if key is None:
            raise Unauthorized("This proxy needs a key that it has issued: send it as a bearer token.")
        if key.expires_at is not None and key.expires_at <= now:
            at = datetime.fromtimestamp(key.expires_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise Unauthorized(f"This key expired at {at}: ask the operator of this proxy for a new one.")
        if now - self._used.get(key.id, 0.0) >= USE_SECONDS:
            self._used[key.id] = now

            async def store_use() -> None:
                with logged(_keys_log, "key_use_not_stored", key=key.id):
                    await self._accounts.key_used(key.id, now)

            self._jobs.start(store_use())
        return key


def first_credentials(incoming: Incoming) -> tuple[str, ...]:
    """The usual credentials as sent, "" for each absent one; RepeatedHeader when one occurs twice."""
    return tuple([incoming.only(name) or "" for name in _FIRST_HEADERS])
