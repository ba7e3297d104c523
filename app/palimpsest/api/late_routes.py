"""A router whose routes are built when they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Route

from palimpsest.proxy.incoming import Receive, Scope, Send


class LateRoute(Route):
    """A route that is found by its path and method, and built at the first request for it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], build: Callable[[], APIRoute]) -> None:
        super().__init__(path, endpoint)
        self._build = build

    @cached_property
    def built(self) -> APIRoute:
        """The route itself."""
        return self._build()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As the built one, which is built on another thread."""
        if "built" not in vars(self):
            await asyncio.to_thread(getattr, self, "built")
        scope["route"] = self.built
        await self.built.handle(scope, receive, send)


class LateRouter(APIRouter):
    """Builds each route at its first request, in 3 ms: all take 0.2 s, and a command needs one or two."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """As an `APIRouter`; the methods must be given."""

        def build() -> APIRoute:
            router = APIRouter(**self._options)
            router.add_api_route(path, endpoint, **options)
            return cast(APIRoute, router.routes[0])

        route = LateRoute(self.prefix + path, endpoint, build)
        # Starlette would add HEAD.
        route.methods = set(options["methods"])
        self.routes.append(route)

    @property
    def built(self) -> list[APIRoute]:
        """All routes, built."""
        return [route.built for route in cast(list[LateRoute], self.routes)]
