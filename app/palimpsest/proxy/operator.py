"""What the admin key opens: the operator's endpoints, and, where that is allowed, reading as a namespace."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from palimpsest.errors import AdminDisabled, AdminKeyRefused, AdminMayNotRead, WrongAdminKey
from palimpsest.proxy.access import Caller
from palimpsest.proxy.archive import missing
from palimpsest.proxy.incoming import Headers, Incoming
from palimpsest.proxy.reports import printable
from palimpsest.proxy.server_secrets import AdminKey
from palimpsest.storage.namespaces import Namespaces

# Names the namespace that the operator reads as.
NAMESPACE_HEADER = b"x-palimpsest-namespace"
_log = structlog.get_logger("palimpsest.operator")


@dataclass(frozen=True, slots=True)
class OperatorAccess:
    """Who may use the operator's endpoints, and read as a namespace if `reads`. `key` None: nobody."""

    key: AdminKey | None = None
    namespaces: Namespaces | None = None
    reads: bool = False

    def check(self, path: str, headers: Headers) -> None:
        """AdminDisabled while no key is set; WrongAdminKey, always in the same words, without the key.

        A wrong key is logged: somebody guesses, or a program has an old one.
        """
        if self.key is None:
            raise AdminDisabled("No admin key is set: set access.admin_key, and send it as a bearer token.")
        if not self.key.opens(headers):
            _log.warning("admin_refused", path=printable(path))
            raise WrongAdminKey("This needs access.admin_key as a bearer token.")

    async def reader(self, path: str, incoming: Incoming) -> Caller | None:
        """The caller that the operator reads as; None for a request of an ordinary caller.

        Raises what `check` raises, AdminMayNotRead unless that is allowed, AdminKeyRefused for a request that
        does not only read, and NotFound for a namespace that does not exist.
        """
        named = incoming.only(NAMESPACE_HEADER)
        if named is None:
            return None
        self.check(path, incoming.headers)
        if not self.reads or self.namespaces is None:
            raise AdminMayNotRead("The operator may not read conversations here: access.admin_reads is off.")
        if incoming.method not in ("GET", "HEAD"):
            raise AdminKeyRefused(
                "The admin key reads as a namespace and changes nothing: GET and HEAD only."
            )
        if await self.namespaces.named(named) is None:
            raise missing()
        return Caller(named)
