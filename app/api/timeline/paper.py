"""Templates filled in, and the headers that every page is sent with.

Escaping is the templates' own: every value that is filled in is escaped, none is trusted. Knows nothing
of what a page says.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.api.timeline.sentences import grouped

# Characters that change the direction of what follows, or that HTML has no place for, are shown by name:
# a text must not look like another one (Unicode TR 36, 2.8; HTML standard, 13.2.3.5).
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = (*(set(range(0x20)) - {0x09, 0x0A, 0x0D}), *range(0x7F, 0xA0))
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = {code: f"[U+{code:04X}]" for code in (*_DIRECTIONS, *_CONTROLS)} | dict.fromkeys(
    _SURROGATES, "\ufffd"
)


class Paper:
    """The templates, read once. A page may load nothing, run nothing and be framed by nobody."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("app.api.timeline"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["grouped"] = grouped
        style = self._templates.get_template("style.css").render()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        self._headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            # A page that links here keeps no hold of the window.
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def page(self, name: str, facts: Mapping[str, Any]) -> Response:
        """The page of a template, filled in beside the event loop: summaries may be long."""
        return self._response(await asyncio.to_thread(self._filled, name, facts), 200, {})

    def problem(self, facts: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Response:
        """The page that says what went wrong."""
        return self._response(self._filled("problem.html", facts), status, headers)

    def _filled(self, name: str, facts: Mapping[str, Any]) -> str:
        return self._templates.get_template(name).render(facts)

    def _response(self, text: str, status: int, headers: Mapping[str, str]) -> Response:
        return Response(text.encode(), status, {**self._headers, **headers}, "text/html; charset=utf-8")


def _visible(value: Any) -> Any:
    """What a template is given to print."""
    return value.translate(_SHOWN) if isinstance(value, str) and not isinstance(value, Markup) else value
