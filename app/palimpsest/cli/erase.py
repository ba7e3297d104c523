"""`palimpsest erase`: a running proxy erases a session, or everything of a key or a namespace.

It calls the proxy by HTTP and opens no database, so the key's access is the same as there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from palimpsest.cli.command import (
    AdminKey,
    Key,
    ProxyUrl,
    awaited,
    print_json,
    proxy_of_caller,
    session_path,
)
from palimpsest.cli.operating import namespace_path
from palimpsest.cli.terminal import counted, printable, say
from palimpsest.errors import SettingsError


def erase(
    session: Annotated[str | None, typer.Option(help="Id or name of the session to erase.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Erase everything of the key.")] = False,
    block: Annotated[bool, typer.Option(help="The session does not come back either.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    namespace: Annotated[
        str | None, typer.Option(help="Erase everything of a namespace, as the operator.")
    ] = None,
    url: ProxyUrl = None,
    key: Key = None,
    admin_key: AdminKey = None,
) -> None:
    """Erase a session, or everything of a key, on a running proxy, and print the receipt as JSON."""
    if bool(session) + everything + bool(namespace) != 1 or (block and not session):
        raise SettingsError(
            "command line: erase takes --session NAME, with --block or without, --all, or --namespace ID."
        )

    async def erased() -> None:
        async with proxy_of_caller(url, admin_key if namespace else key) as api:
            if session:
                path = session_path(session)
                found = await api.fields(path)
                name = f" ({found['name']})" if found.get("name") else ""
                what = f"session {found['id']}{name}: {counted(found['messages'], 'message')}"
                path += "?block=true" if block else ""
            elif namespace:
                path = namespace_path(namespace)
                sessions = (await api.fields(path))["sessions"]
                what = f"everything of the namespace {namespace}: {counted(sessions, 'session')}"
                path += "?confirm=everything"
            else:
                path = "namespace?confirm=everything"
                sessions = (await api.fields("sessions?limit=1"))["total"]
                what = f"everything of this key: {counted(sessions, 'session')}"
            if not yes and not typer.confirm(printable(f"Erase {what}, for good?"), err=True):
                say("Nothing was erased.", err=True)
                raise typer.Exit(1)
            print_json(await api.fields(path, "DELETE"))

    awaited(erased())
