"""Which names the proxy answers to, and which web pages may speak to it (rule 36).

A pure decision over headers. A browser sends requests for whatever page it shows, also to this machine.
Three of its habits tell them apart from a program's: it names the host as the page's address does (a name
can be pointed at this machine: DNS rebinding), it says where a page comes from (`Origin`, Fetch standard
3.1), and how a request came about (`Sec-Fetch-*`, Fetch Metadata; only to addresses that it trusts, loopback
among them). Programs send none of the latter two, so nothing is asked of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal, TypeAlias

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
# Names that no public DNS can hold (RFC 6761; ICANN, 2024-07): `localhost` itself, `host.docker.internal`.
_PRIVATE_SUFFIXES = (".localhost", ".internal")
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
# How long a browser may remember a preflight's answer. Chrome's own ceiling is two hours.
_MAX_AGE_SECONDS = 600
_TOKENS = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{0,4096}")


@dataclass(frozen=True)
class WebOrigins:
    """What the operator has decided.

    `hosts`: names that are answered to, in lower case; None for any. `is_reachable`: others than this
    machine can reach the proxy, so that it also answers to names without a dot, such as a container's.
    `origins`: pages of these origins may speak to it; `*` for all, without a browser's own credentials.
    """

    hosts: Collection[str] | None
    is_reachable: bool
    origins: Collection[str]

    def refusal(self, method: str, path: str, headers: RawHeaders) -> Literal["host", "origin"] | None:
        """What is wrong with a request, None for nothing."""
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if self.hosts is not None and not all(map(self._is_own_name, hosts)):
            return "host"
        if _is_own_page(hosts, headers) or self._listed(headers) or _is_visit(method, path, headers):
            return None
        return "origin"

    def is_preflight(self, method: str, headers: RawHeaders) -> bool:
        """True for a browser's question whether a page may send a request."""
        return method == "OPTIONS" and _header(headers, b"access-control-request-method") is not None

    def preflight(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """The answer to that question, for a page that may."""
        asked = _header(headers, b"access-control-request-headers") or b""
        answer = [
            *self._allowed(headers),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", b"%d" % _MAX_AGE_SECONDS),
            (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
        ]
        if asked and _TOKENS.fullmatch(asked):
            answer.append((b"access-control-allow-headers", asked))
        if _header(headers, b"access-control-request-private-network") == b"true":
            answer.append((b"access-control-allow-private-network", b"true"))
        return answer

    def shared(self, headers: RawHeaders, answer: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """What is added to the headers of an `answer`: a listed page may read it, all of its headers too."""
        if not self.origins:
            return []
        allowed = self._allowed(headers)
        names = {name.lower() for name, _ in answer} - {b"set-cookie", b"vary"}
        exposed = [(b"access-control-expose-headers", b", ".join(sorted(names)))] if names else []
        return [*allowed, *(exposed if allowed else ()), (b"vary", b"Origin")]

    def _allowed(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        origin = _header(headers, b"origin")
        if origin is None or not self._listed(headers):
            return []
        if origin.decode("latin-1").lower() not in self.origins:
            return [(b"access-control-allow-origin", b"*")]
        return [(b"access-control-allow-origin", origin), (b"access-control-allow-credentials", b"true")]

    def _listed(self, headers: RawHeaders) -> bool:
        origin = _header(headers, b"origin")
        if origin is None:
            return False
        return "*" in self.origins or origin.decode("latin-1").lower() in self.origins

    def _is_own_name(self, host: str) -> bool:
        name = _without_port(host)
        if self.hosts is None or name in self.hosts or name == "localhost" or _is_address(name):
            return True
        return name.endswith(_PRIVATE_SUFFIXES) or (self.is_reachable and "." not in name)


def _is_own_page(hosts: Sequence[str], headers: RawHeaders) -> bool:
    """True for a program, and for a page that the proxy itself has served."""
    site, origin = _header(headers, b"sec-fetch-site"), _header(headers, b"origin")
    if site is not None:
        return site in (b"same-origin", b"none")
    return origin is None or origin.decode("latin-1").lower().partition("://")[2] in hosts


def _is_visit(method: str, path: str, headers: RawHeaders) -> bool:
    """True for somebody who follows a link to one of our pages: the page with the link sees nothing."""
    return (
        method in ("GET", "HEAD")
        and not path.startswith(("/v1/", "/s/"))
        and _header(headers, b"sec-fetch-mode") == b"navigate"
        and _header(headers, b"sec-fetch-dest") == b"document"
    )


def _header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The value, those of a repeated header joined; None without one."""
    values = [value for key, value in headers if key == name]
    return b", ".join(values) if values else None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
