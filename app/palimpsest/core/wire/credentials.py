"""Which headers, cookies and query fields of a request are credentials (rule 36), and what is in one.

A pure decision over names and values; validity is not checked.

Sources of the names: the API references of OpenAI, Azure OpenAI and API Management, Anthropic, Gemini,
Portkey, Cloudflare AI Gateway and Access, Helicone, LiteLLM, Bifrost, Kong, GitLab, AWS and oauth2-proxy
(2026-11).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias
from urllib.parse import unquote_plus

RawHeaders: TypeAlias = Iterable[tuple[bytes, bytes]]
Place = Literal["header", "cookie", "query"]

# They have identified callers since the first release: the digests of stored namespaces begin with these.
FIRST_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
_FURTHER = """
apikey x-apikey ocp-apim-subscription-key subscription-key x-portkey-api-key x-portkey-virtual-key
x-portkey-config x-portkey-aws-access-key-id x-portkey-aws-secret-access-key x-portkey-aws-session-token
x-portkey-azure-ad-token x-portkey-azure-entra-client-secret x-portkey-vertex-service-account-json
cf-aig-authorization cf-access-client-id cf-access-client-secret cf-access-token helicone-auth
x-litellm-api-key x-bf-vk x-bf-api-key x-goog-iam-authorization-token x-serverless-authorization
x-amz-security-token x-auth-token x-auth-key x-auth-email x-authorization auth-token x-access-token
x-token x-user-token x-client-secret x-secret-key private-token job-token deploy-token
x-forwarded-access-token x-auth-request-access-token x-vercel-oidc-token x-github-token
"""
HEADERS = (*FIRST_HEADERS, *_FURTHER.split())
QUERY = (
    "key", "api-key", "apikey", "subscription-key", "access-token", "token", "auth", "code", "sig",
)  # fmt: skip
# Header and field names whose classification is cached: those of real clients, and room for made-up ones.
_MOST_CACHED = 2_048
# These look like credentials and are not: they change from request to request, or are for another hop.
_OTHERS = """
*idempotency-key sec-* *csrf* *xsrf* *-nonce *-timestamp *-signature *cache-key *page-token *pagetoken
*next-token *nexttoken *continuation-token *sync-token proxy-* www-authenticate authentication-info
"""
NOT_CREDENTIALS = (*_OTHERS.split(),)
# In any part of the name, or at the end of one of its words: `accesstoken`, `x-subscriptionkey`.
_LOOKS = re.compile(
    r"auth(?!or(?!i[sz]))|secret|credential|passw|passphrase|bearer|jwt|api-?key|(?:(?<!port)key|token)(?![a-z0-9])"
)
# Cookies may also have a name that web sites give to session cookies.
_LOOKS_COOKIE = re.compile(rf"{_LOOKS.pattern}|sess|sid(?![a-z0-9])")


@dataclass(frozen=True)
class CredentialNames:
    """Decides by name what is a credential: listed names, and names that look like one.

    Case is ignored, and `_` equals `-`. Names that match `exempt` (`*` matches anything) never look like
    credentials; if also listed in `headers` or `query` they are credentials all the same. The whole `Cookie`
    header is one if `headers` lists it, else only cookies whose name looks like one.
    """

    headers: Sequence[str] = HEADERS
    query: Sequence[str] = QUERY
    exempt: Sequence[str] = NOT_CREDENTIALS

    @cached_property
    def _named(self) -> dict[Place, frozenset[str]]:
        first = frozenset(FIRST_HEADERS)
        return {
            "header": first | frozenset(map(_normalized, self.headers)),
            "cookie": frozenset(),
            "query": frozenset(map(_normalized, self.query)),
        }

    @cached_property
    def _exempt(self) -> tuple[str, ...]:
        return tuple(map(_normalized, self.exempt))

    @cached_property
    def counts(self) -> Callable[[str, Place], bool]:
        """True when a header, cookie or query field of this name is a credential."""
        # Clients send the same names again and again; classifying one takes 5 us.
        return lru_cache(_MOST_CACHED)(self._counts)

    @cached_property
    def is_header(self) -> Callable[[bytes], bool]:
        """True when the whole header of this name is a credential."""
        return lru_cache(_MOST_CACHED)(lambda name: self._counts(name.decode("latin-1"), "header"))

    def _counts(self, name: str, place: Place) -> bool:
        plain = _normalized(name)
        if plain in self._named[place]:
            return True
        looks = _LOOKS_COOKIE if place == "cookie" else _LOOKS
        return looks.search(plain) is not None and not self._is_exempt(plain)

    def is_expected(self, name: str) -> bool:
        """True when a client or a front end may send a query field of this name to any endpoint.

        It is a credential, or was declared to be none.
        """
        return self.counts(name, "query") or self._is_exempt(_normalized(name))

    def _is_exempt(self, plain: str) -> bool:
        return any(fnmatchcase(plain, pattern) for pattern in self._exempt)

    def further(self, headers: RawHeaders, target: str) -> list[str]:
        """Every credential but the `FIRST_HEADERS`: place with name, and value, flattened and sorted.

        Repeated names yield each of their values. `target` is a path with its query, as on the wire.
        """
        found = [(f"header:{name}", value) for name, value in self._in_headers(headers)]
        if not self.is_header(b"cookie"):
            # The length rules out most names cheaply.
            lines = (value for name, value in headers if len(name) == len(b"cookie") and _is_cookie(name))
            cookies = (_cookie(pair) for line in lines for pair in line.split(b";"))
            found += [(f"cookie:{name}", value) for name, value in cookies if self.counts(name, "cookie")]
        for field in self._in_query(target):
            found.append((f"query:{_normalized(_field_name(field))}", field.partition("=")[2]))
        return [part for pair in sorted(found) for part in pair]

    def values(self, headers: RawHeaders, target: str) -> list[str]:
        """The values that `further` finds in headers and query; one may be a key of this program's."""
        fields = (field.partition("=")[2] for field in self._in_query(target))
        return [*(value for _, value in self._in_headers(headers)), *fields]

    def only(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """The headers that are credentials; `Cookie` with only the cookies that are."""
        return self._headers(headers, wanted=True)

    def without(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """The headers that are not credentials, in order; `Cookie` with only the cookies that are not."""
        return self._headers(headers, wanted=False)

    def target_without(self, target: str) -> str:
        """A path and query without the fields that are credentials; the others as spelled."""
        path, _, query = target.partition("?")
        if not query:
            return target
        kept = self._in_query(target, wanted=False)
        return f"{path}?{'&'.join(kept)}" if kept else path

    def query_of(self, target: str) -> str:
        """The query fields that are credentials, as spelled, joined; empty without any."""
        return "&".join(self._in_query(target))

    def _headers(self, headers: RawHeaders, *, wanted: bool) -> list[tuple[bytes, bytes]]:
        kept: list[tuple[bytes, bytes]] = []
        is_credential, is_whole = self.is_header, self.is_header(b"cookie")
        for name, value in headers:
            if is_whole or not _is_cookie(name):
                if is_credential(name) is wanted:
                    kept.append((name, value))
                continue
            cookies = [c for c in value.split(b";") if self.counts(_cookie(c)[0], "cookie") is wanted]
            if cookies:
                kept.append((name, b";".join(cookies).strip()))
        return kept

    def _in_headers(self, headers: RawHeaders) -> Iterator[tuple[str, str]]:
        is_credential = self.is_header
        for name, value in headers:
            if not is_credential(name):
                continue
            lowered = name.decode("latin-1").lower()
            if lowered not in FIRST_HEADERS:
                yield lowered, value.decode("latin-1")

    def _in_query(self, target: str, *, wanted: bool = True) -> list[str]:
        query = target.partition("?")[2]
        fields = query.split("&") if query else ()
        return [field for field in fields if self.counts(_field_name(field), "query") is wanted]


# The defaults.
USUAL_NAMES = CredentialNames()


def bearer_token(credential: str) -> str:
    """The key, without a leading `Bearer`."""
    scheme, _, token = credential.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else credential


def key_digest(key: str) -> bytes:
    """The sha256 under which a proxy-issued key is stored. The key has 256 random bits: no salt is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def _is_cookie(name: bytes) -> bool:
    return name.lower() == b"cookie"


def _cookie(pair: bytes) -> tuple[str, str]:
    name, _, value = pair.strip().decode("latin-1").partition("=")
    return name, value


def _field_name(field: str) -> str:
    return unquote_plus(field.partition("=")[0])
