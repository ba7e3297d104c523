"""Which host names the proxy answers to, and which web pages may use it (rule 36).

A pure decision over headers. A browser sends requests on behalf of any page that it shows, also to this
machine. Three headers reveal them: `Host` is the name in the page's URL (which DNS rebinding can point at
this machine), `Origin` names the page's origin (Fetch standard, 3.1), and `Sec-Fetch-*` says how the request
came about (Fetch Metadata; sent only to trustworthy addresses, loopback among them). Programs send neither of
the latter two and are not restricted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal, TypeAlias

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
# Names that public DNS never has (RFC 6761; ICANN, 2024-07), such as `host.docker.internal`.
_PRIVATE_SUFFIXES = (".localhost", ".internal")
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
# How long a browser may cache a preflight's answer. Chrome's own maximum is two hours.
_MAX_AGE_SECONDS = 600
# A name or an IPv4 address, or an IPv6 address in brackets, then perhaps a port (RFC 9110, 7.2).
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)(?:%[\w.~-]+)?\]|([\w.~-]+?)\.?)(?::\d*)?")
_TOKENS = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{0,4096}")


@dataclass(frozen=True)
class WebOrigins:
    """The hosts and origins that the operator allows.

    `hosts`: accepted host names in lower case; None for any. `is_reachable`: other machines can reach the
    proxy, so that names without a dot, such as a container's, are accepted too. `origins`: pages of these
    origins may use the proxy; `*` for all, without the browser's own credentials.
    """

    hosts: Collection[str] | None
    is_reachable: bool
    origins: Collection[str]

    def refusal(self, method: str, path: str, headers: RawHeaders) -> Literal["host", "origin"] | None:
        """Why a request is refused; None when it is allowed."""
        hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
        if self.hosts is not None and not all(map(self._is_own_name, hosts)):
            return "host"
        site, origin = _header(headers, b"sec-fetch-site"), _header(headers, b"origin")
        if site is not None:
            is_own = site in (b"same-origin", b"none")
        else:
            # A program, or a page that the proxy itself serves.
            is_own = origin is None or origin.decode("latin-1").lower().partition("://")[2] in hosts
        if is_own or self._allowed(headers):
            return None
        # A user may follow a link to one of our pages: the linking page cannot read the answer.
        is_navigation = (
            method in ("GET", "HEAD")
            and not path.startswith(("/v1/", "/s/"))
            and _header(headers, b"sec-fetch-mode") == b"navigate"
            and _header(headers, b"sec-fetch-dest") == b"document"
        )
        return None if is_navigation else "origin"

    def is_preflight(self, method: str, headers: RawHeaders) -> bool:
        """True for a CORS preflight request."""
        return method == "OPTIONS" and _header(headers, b"access-control-request-method") is not None

    def preflight(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """The headers that answer a preflight request of an allowed page."""
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
        """The CORS headers to add to an `answer`: a listed page may read it and all of its headers."""
        if not self.origins:
            return []
        allowed = self._allowed(headers)
        names = {name.lower() for name, _ in answer} - {b"set-cookie", b"vary"}
        exposed = [(b"access-control-expose-headers", b", ".join(sorted(names)))] if names else []
        return [*allowed, *(exposed if allowed else ()), (b"vary", b"Origin")]

    def _allowed(self, headers: RawHeaders) -> list[tuple[bytes, bytes]]:
        """The headers that allow a listed page; none for any other."""
        origin = _header(headers, b"origin")
        if origin is not None and origin.decode("latin-1").lower() in self.origins:
            return [(b"access-control-allow-origin", origin), (b"access-control-allow-credentials", b"true")]
        is_any = origin is not None and "*" in self.origins
        return [(b"access-control-allow-origin", b"*")] if is_any else []

    def _is_own_name(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = (found[1] or found[2]) if found else "."
        if name in (*(self.hosts or ()), "localhost") or name.endswith(_PRIVATE_SUFFIXES):
            return True
        try:
            ip_address(name)
        except ValueError:
            return self.is_reachable and "." not in name
        return True


def _header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The header's value, or the values of a repeated one joined; None without it."""
    values = [value for key, value in headers if key == name]
    return b", ".join(values) if values else None
