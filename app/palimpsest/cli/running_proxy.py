"""Which running proxy a command asks, and for whom: the options, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import signature
from typing import Annotated, Any, NamedTuple

import typer

ProxyUrl = Annotated[str, typer.Option(help="Address of the running proxy.")]
Key = Annotated[
    str | None,
    typer.Option(envvar="OPENAI_API_KEY", help="The key whose conversations are meant.", show_envvar=True),
]
Namespace = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Read as this namespace, as the operator; see access.admin_reads."),
]
AdminKey = Annotated[
    str | None,
    typer.Option(envvar="PALIMPSEST_ACCESS__ADMIN_KEY", help="access.admin_key.", show_envvar=True),
]
HERE = "http://127.0.0.1:8000"


class Proxy(NamedTuple):
    """A running proxy: its address, and the key whose conversations are meant.

    With a namespace the key is the admin key, and the conversations are that namespace's.
    """

    url: str
    key: str | None
    namespace: str | None = None


def _proxy(
    url: ProxyUrl = HERE, key: Key = None, namespace: Namespace = None, admin_key: AdminKey = None
) -> Proxy:
    """What the options mean."""
    return Proxy(url, key) if namespace is None else Proxy(url, admin_key, namespace)


_OPTIONS = tuple(signature(_proxy, eval_str=True).parameters.values())


def asking(command: Callable[..., None], *, for_operators: bool = False) -> Callable[..., None]:
    """The command with options in place of its parameter `proxy`; `for_operators`: any namespace's, too."""
    options = _OPTIONS if for_operators else _OPTIONS[:2]

    def asks(**given: Any) -> None:
        proxy = _proxy(**{each.name: given.pop(each.name) for each in options})
        command(proxy=proxy, **given)

    own = signature(command, eval_str=True)
    shown = [*(each for name, each in own.parameters.items() if name != "proxy"), *options]
    update_wrapper(asks, command, ("__module__", "__name__", "__qualname__", "__doc__"))
    asks.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    asks.__annotations__ = {each.name: each.annotation for each in shown}
    return asks
