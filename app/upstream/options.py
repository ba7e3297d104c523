"""From the settings of an upstream to the options of its client.

Knows nothing of what is sent.
"""

from __future__ import annotations

from app.settings.models import Upstream as UpstreamSettings
from app.upstream.client import UpstreamOptions


def options_of(settings: UpstreamSettings, base_url: str) -> UpstreamOptions:
    """The client's options; `base_url` is given apart, since the demo's is known only at start."""
    return UpstreamOptions(
        base_url=base_url,
        connect_seconds=settings.connect_timeout_seconds,
        first_byte_seconds=settings.first_byte_timeout_seconds,
        idle_seconds=settings.idle_timeout_seconds,
        connections=settings.max_connections,
        keepalive_seconds=settings.keep_alive_seconds,
        proxy=settings.proxy_url.get_secret_value() if settings.proxy_url else None,
        proxy_from_environment=settings.trust_env,
        ca_file=settings.ca_bundle,
        extra_headers=tuple(
            (name.encode("latin-1"), value.get_secret_value().encode("latin-1"))
            for name, value in settings.headers.items()
        ),
    )
