"""Which proxy of the environment's stands before an address. Read once, at start."""

from __future__ import annotations

import urllib.request
from ipaddress import ip_address

from yarl import URL


def environment_proxy(base: URL) -> str | None:
    """The proxy that the environment names for this address; None where there is none."""
    host = base.host or ""
    # A model on this machine is not behind the company's proxy, whether or not NO_PROXY says so.
    if host == "localhost" or _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(base.scheme)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
