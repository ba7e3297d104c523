"""What `palimpsest doctor` finds by asking servers: whether they answer, and the windows of their models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from palimpsest.cli.terminal import MODELS_SHOWN, Finding
from palimpsest.core.budget.window import window_from_models_payload, window_from_name
from palimpsest.core.urls import without_query
from palimpsest.errors import PalimpsestError
from palimpsest.main.upstreams import key_of
from palimpsest.settings.settings import Settings, configured_window, to_policy
from palimpsest.settings.upstreams import Route, UpstreamSettings
from palimpsest.upstream.models import models_reply, versioned, window_from_model_data

_REACHING = (
    "Is the server up, and are host and port of base_url right? Behind a corporate proxy, look at"
    " upstream.proxy_url and upstream.ca_bundle."
)


async def asked_upstreams(settings: Settings) -> AsyncIterator[Finding]:
    """The upstream with the windows it states, then the servers of the routes, each as it has answered."""
    if settings.upstream.base_url is None:
        yield Finding("upstream", "ok", "none set: the built-in demo answers")
    else:
        found, payload = await _reached("upstream", settings.upstream, settings)
        yield found
        for window in _windows(settings, payload) if found.state == "ok" else ():
            yield window
    for route in settings.routes:
        found, _ = await _reached(f"route {route.match}", route, settings)
        yield found


async def _reached(name: str, server: UpstreamSettings | Route, settings: Settings) -> tuple[Finding, Any]:
    """Whether a server answers, and its list of models."""
    how, address = settings.upstream, without_query(server.base_url or "")
    key = key_of(server.api_key, server.key_header)
    headers = [key.header] if key else []
    try:
        said = await models_reply(server, how, headers, how.connect_timeout_seconds + 10)
    except PalimpsestError as error:
        return Finding(name, "failed", f"{address}: {error.message}", _REACHING), None
    except TimeoutError:
        return Finding(name, "failed", f"{address}: no answer", "Is the server up?"), None
    except OSError:
        remedy = "upstream.ca_bundle names a PEM file of authorities."
        return Finding(name, "failed", f"{how.ca_bundle} cannot be read as one", remedy), None
    status, payload = said.status, said.json()
    reached = f"{address} answers GET /models with {status}"
    if status == 404:
        # Most likely a missing version path; a few servers have no list of models.
        if longer := await versioned(server, how, headers):
            remedy = f"Set base_url to {longer}."
            return Finding(name, "failed", f"{reached}; {longer} answers", remedy), None
        remedy = "Check the path of base_url: most servers need /v1 at its end. A few have no list of models."
        return Finding(name, "warning", reached, remedy), None
    if status in (401, 403) and key is None:
        return Finding(name, "ok", f"{reached}: it wants a caller's key"), None
    if status >= 500:
        return Finding(name, "failed", reached, "Look at the upstream's own log."), None
    return Finding(name, "ok", reached), payload


def _windows(settings: Settings, payload: Any) -> Iterator[Finding]:
    """Each model's window, and its source."""
    named = [entry.match for entry in settings.models if not set("*?[") & set(entry.match)]
    listed = payload.get("data") if isinstance(payload, Mapping) else None
    ids = [m.get("id") for m in listed if isinstance(m, Mapping)] if isinstance(listed, list) else []
    models = list(dict.fromkeys([*named, *(name for name in ids if isinstance(name, str))]))
    for model in models[:MODELS_SHOWN]:
        sources: tuple[tuple[str, Callable[[], int | None]], ...] = (
            ("the settings", partial(configured_window, settings, model)),
            ("the upstream", partial(window_from_models_payload, payload, model)),
            ("published model data", partial(window_from_model_data, model)),
            ("the model's name", partial(window_from_name, model)),
        )
        found = ((tokens, source) for source, ask in sources if (tokens := ask()) is not None)
        default = to_policy(settings, model).assumed_window_tokens, "the default"
        tokens, source = next(found, default)
        yield Finding(f"window of {model}", "ok", f"{tokens:,} tokens, from {source}")
    if len(models) > MODELS_SHOWN:
        yield Finding("windows", "ok", f"{len(models) - MODELS_SHOWN} more models are not shown")
