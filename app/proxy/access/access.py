"""Who is asking: the namespace of a caller, and what may be forwarded in its name (rules 25 to 27).

Everything a caller can read or write lives inside its namespace. The caller's credential is turned
into a keyed digest here and is never stored, logged or put into an error.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.wire.credentials import FIRST_HEADERS, USUAL_NAMES, CredentialNames
from app.errors import Unauthorized
from app.proxy.access.pepper import Pepper
from app.proxy.incoming import Headers, Incoming
from app.storage.contract import Store

_FIRST_HEADERS = tuple(name.encode() for name in FIRST_HEADERS)
# Credentials remembered per process: a digest and a namespace id are about 200 bytes.
REMEMBERED = 10_000
# A revoked proxy key may go on working in this process for at most this many seconds.
KEY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose namespace is known."""

    namespace: str


class Access:
    """Finds the namespace of a request; `proxy_keys` demands a key issued by this proxy.

    All credentials of a request together tell callers apart: beside a key that matters another header may
    hold a placeholder that everybody sends. `names` says what is one.
    """

    def __init__(
        self,
        store: Store,
        pepper: Pepper,
        realm: str,
        *,
        proxy_keys: bool,
        identity_headers: Sequence[str],
        names: CredentialNames = USUAL_NAMES,
    ) -> None:
        self._store = store
        self._pepper = pepper
        self._realm = realm
        self._proxy_keys = proxy_keys
        self._names = names
        self._identity_headers = tuple(name.lower().encode("latin-1") for name in identity_headers)
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    async def caller_of(self, incoming: Incoming) -> Caller:
        """The caller; Unauthorized when proxy keys are demanded and none is valid."""
        digest = self._digest_of(incoming)
        now = time.monotonic()
        remembered = self._known.get(digest)
        if remembered is not None and now < remembered[1]:
            return Caller(remembered[0])
        namespace = await self._namespace(incoming, digest)
        if not (await self._store.standing(namespace)).proven:
            # Another server on the same database may erase it, and with it where the credential leads.
            return Caller(namespace)
        self._known[digest] = (namespace, now + KEY_SECONDS if self._proxy_keys else float("inf"))
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return Caller(namespace)

    async def standing_of(self, incoming: Incoming, *, asks_store: bool = False) -> str | None:
        """The caller's namespace if the upstream has accepted its credentials before, as far as is known.

        Where proxy keys are demanded every caller with a valid one has it; Unauthorized for the others.
        """
        if self._proxy_keys:
            return (await self.caller_of(incoming)).namespace
        if asks_store:
            await self.caller_of(incoming)
        remembered = self._known.get(self._digest_of(incoming))
        return remembered[0] if remembered is not None else None

    async def admit(self, incoming: Incoming) -> None:
        """Whoever asks may pass; as `caller_of`, but nothing is recorded and nothing need be."""
        if self._proxy_keys:
            await self.caller_of(incoming)
        else:
            first_credentials(incoming)

    def credentials_of(self, incoming: Incoming) -> Headers:
        """The caller's own headers, for questions that are put to the upstream in its name."""
        return self._names.only(incoming.headers)

    def forget(self, namespaces: Sequence[str]) -> None:
        """They are gone: whoever asks with their credentials begins anew."""
        gone = frozenset(namespaces)
        for digest in [digest for digest, (namespace, _) in self._known.items() if namespace in gone]:
            del self._known[digest]

    def _digest_of(self, incoming: Incoming) -> bytes:
        first, identity = first_credentials(incoming), self._identity_of(incoming)
        # Behind what was there from the first release on: who sends nothing more keeps its namespace.
        further = self._names.further(incoming.headers, incoming.target)
        return self._pepper.digest_of(self._realm, *first, *identity, *further)

    def _identity_of(self, incoming: Incoming) -> tuple[str, ...]:
        return tuple(incoming.only(name) or "" for name in self._identity_headers)

    async def _namespace(self, incoming: Incoming, digest: bytes) -> str:
        if not self._proxy_keys:
            return await self._store.namespace_of(digest, time.time())
        further = self._names.values(incoming.headers, incoming.target)
        presented = next(filter(None, (*first_credentials(incoming), *further)), "")
        issued = await self._store.key_namespace(key_digest(bearer_token(presented)))
        if issued is None:
            raise Unauthorized("This proxy needs a key that it has issued: send it as a bearer token.")
        identity = self._identity_of(incoming)
        if any(identity):
            return await self._store.namespace_of(self._pepper.digest_of(issued, *identity), time.time())
        return issued


def first_credentials(incoming: Incoming) -> tuple[str, ...]:
    """The usual credentials as sent, "" for each that is absent; RepeatedHeader when one stands twice."""
    return tuple(incoming.only(name) or "" for name in _FIRST_HEADERS)


def bearer_token(credential: str) -> str:
    """The key itself, with or without the `Bearer` word before it."""
    scheme, _, token = credential.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else credential


def key_digest(key: str) -> bytes:
    """What is stored of a proxy-issued key: its sha256. The key has 256 random bits, so no salt is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
