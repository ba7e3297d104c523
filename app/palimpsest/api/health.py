"""Health checks for supervisors, without authentication and without FastAPI, which may not be loaded yet."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from palimpsest.api.body import entry_of
from palimpsest.api.problems import problem_reply
from palimpsest.api.replies import reply
from palimpsest.errors import MethodNotAllowed
from palimpsest.proxy.incoming import Receive, Scope, Send
from palimpsest.storage.store import Store


class HealthPages:
    """An ASGI application for `/healthz` and `/readyz`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._routes = Router(redirect_slashes=False)
        self._routes.add_route("/healthz", self.alive, methods=["GET", "HEAD"])
        self._routes.add_route("/readyz", self.ready, methods=["GET", "HEAD"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["method"] in ("GET", "HEAD"):
            await self._routes(scope, receive, send)
            return
        problem = MethodNotAllowed("This path exists, but not with this method.")
        entry_of(scope).failed(problem)
        await problem_reply(problem, {"allow": "GET, HEAD"})(scope, receive, send)

    async def alive(self, _: Request) -> Response:
        """200 as long as the process answers; nothing else is checked."""
        return reply({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 when a write and a read of the store succeed; otherwise 503 with a reason in one word."""
        failure = await self._store.unready()
        if failure is None:
            return reply({"status": "ready"})
        entry_of(request.scope).failed(failure)
        reason, message = failure.reason or "unavailable", failure.message
        error = {"message": message, "type": failure.type, "param": None, "code": failure.code}
        answer = reply({"status": "not ready", "reason": reason, "error": error}, failure.status)
        answer.headers["retry-after"] = "1"
        return answer
