"""`GET /metrics`, without FastAPI: a scrape alone must not load our pages.

Totals of all callers are the operator's. With a key, every reader must send it. Without one, only a program
on this machine is answered that speaks to the proxy itself: a front end on the same machine hands on what
strangers send, which its forwarding headers, the name in `Host` or its HTTP/1.0 reveal.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from palimpsest.api.front import guarded
from palimpsest.api.replies import PRIVATE
from palimpsest.core.wire.credentials import bearer_token
from palimpsest.errors import MethodNotAllowed, Unauthorized
from palimpsest.proxy.incoming import ASGIApp, Receive, Scope, Send
from palimpsest.proxy.telemetry.metrics import Metrics
from palimpsest.proxy.telemetry.siblings import Siblings

# Added by front ends (RFC 7239 and its predecessors, RFC 9110).
_FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class MetricsPage:
    """Answers `/metrics`. `key`: what readers must send; None: they must be on this machine."""

    def __init__(self, metrics: Metrics, siblings: Siblings | None, key: str | None) -> None:
        self._metrics = metrics
        self._siblings = siblings
        self._key = key
        self._routes = Router(redirect_slashes=False)
        self._routes.add_route("/metrics", self.read, methods=["GET", "HEAD"])

    def before(self, pages: ASGIApp) -> ASGIApp:
        """An application that answers `/metrics`, and hands all else to `pages`."""

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            is_ours = scope["type"] == "http" and scope["path"] == "/metrics"
            await (guarded(self, scope, receive, send) if is_ours else pages(scope, receive, send))

        return application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["method"] not in ("GET", "HEAD"):
            raise MethodNotAllowed("This path exists, but not with this method.")
        await self._routes(scope, receive, send)

    async def read(self, request: Request) -> Response:
        """The numbers in Prometheus' text format, or OpenMetrics'. Unauthorized for strangers."""
        self._admit(request)
        body, kind = await self._metrics.text(self._siblings, request.headers.get("accept", ""))
        return Response(body, headers={**PRIVATE, "content-type": kind})

    def _admit(self, request: Request) -> None:
        if self._key is not None:
            given = bearer_token(request.headers.get("authorization", ""))
            if not hmac.compare_digest(given.encode(), self._key.encode()):
                raise Unauthorized("The metrics need telemetry.metrics_key as a bearer token.")
        elif not _is_local(request):
            raise Unauthorized("Only this machine may read the metrics: set telemetry.metrics_key.")


def _is_local(request: Request) -> bool:
    """True for a program on this machine that speaks to the proxy itself."""
    # nginx speaks HTTP/1.0 to what stands behind it, unless told otherwise (until 1.29); no scraper does.
    is_old = request.scope["http_version"] == "1.0"
    if request.client is None or is_old or any(name in request.headers for name in _FORWARDING):
        return False
    return _is_loopback(request.client.host) and _is_loopback(request.url.hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
