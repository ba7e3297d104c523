"""How a command is made of a function: the options that several have, what they open, what is printed.

What a command opens, and what it does then, is loaded when it runs: `--help` needs no server and no settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import update_wrapper
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import typer

from palimpsest.cli.terminal import say

if TYPE_CHECKING:
    from palimpsest.settings.settings import Settings
    from palimpsest.upstream.own_api import OwnApi

ProxyUrl = Annotated[
    str | None,
    typer.Option(
        envvar="PALIMPSEST_URL",
        help="Address of the running proxy; else the one that the settings have it listen on.",
        show_envvar=True,
    ),
]
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
Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./palimpsest.yaml.")]
Database = Annotated[str | None, typer.Option("--database", help="sqlite:///path or postgresql://...")]
UpstreamUrl = Annotated[
    str | None, typer.Option("--upstream", help="Base URL of the OpenAI-compatible server.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Json = Mapping[str, Any]
_T = TypeVar("_T")


def proxy_of_caller(url: ProxyUrl = None, key: Key = None) -> AbstractAsyncContextManager[OwnApi]:
    """A running proxy, and the conversations of a key."""
    return _own_api(url, key)


def proxy_of_reader(
    url: ProxyUrl = None, key: Key = None, namespace: Namespace = None, admin_key: AdminKey = None
) -> AbstractAsyncContextManager[OwnApi]:
    """As `proxy_of_caller`; with a namespace its conversations, by the admin key."""
    return _own_api(url, key if namespace is None else admin_key, namespace)


def proxy_of_operator(
    url: ProxyUrl = None, admin_key: AdminKey = None
) -> AbstractAsyncContextManager[OwnApi]:
    """A running proxy, for its operator."""
    return _own_api(url, admin_key)


def _own_api(
    url: str | None, key: str | None, namespace: str | None = None
) -> AbstractAsyncContextManager[OwnApi]:
    from palimpsest.upstream.own_api import own_api

    if url:
        return own_api(url, key, namespace)
    settings = settings_from(None, None)
    host, port = settings.server.host, settings.server.port or 8_000
    # What listens everywhere is here, too.
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)  # noqa: S104
    asked = f", where server.port has it listen ({settings.source_of('server.port')})"
    return own_api(f"http://{host}:{port}", key, namespace, asked)


def settings_from(config: Path | None, database: str | None, upstream: str | None = None) -> Settings:
    """The settings of a command with these options. SettingsError."""
    from palimpsest.settings.load import load_settings

    return load_settings(config, {"database.url": database, "upstream.base_url": upstream})


def configured(database: Database = None, config: Config = None) -> AbstractAsyncContextManager[Settings]:
    """The settings, by which a command finds the database."""
    return nullcontext(settings_from(config, database))


# These classes are loaded when a command runs, and are no options.
_NOT_LOADED: Mapping[str, Any] = {"Settings": None, "OwnApi": None}


def command(
    opened: Callable[..., AbstractAsyncContextManager[Any]],
    lines: Callable[[Any], Iterable[str]] | None = None,
    fields: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., Coroutine[Any, Any, Any]]], Callable[..., None]]:
    """A decorator that gives a function the options of `opened` in place of its first parameter.

    The function gets what `opened` yields. With `lines` its result, if any, is printed: as these lines, or
    with --json as what `fields` makes of it.
    """
    options = [*signature(opened, eval_str=True, locals=_NOT_LOADED).parameters.values()]
    printing = [Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)]

    def made(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            as_json = lines is not None and given.pop("as_json")

            async def work() -> Any:
                async with opened(**{each.name: given.pop(each.name) for each in options}) as first:
                    return await function(first, **given)

            result = awaited(work())
            if lines is not None and result is not None:
                print_result(result, lines, as_json, fields)

        own = signature(function, eval_str=True, locals=_NOT_LOADED)
        shown = [*list(own.parameters.values())[1:], *options, *(printing if lines else ())]
        update_wrapper(called, function, ("__module__", "__name__", "__qualname__", "__doc__"))
        called.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in shown}
        return called

    return made


def awaited(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of the work, in an event loop of its own. `--help` needs none and does not load asyncio."""
    import asyncio

    return asyncio.run(work)


def print_result(
    result: _T,
    lines: Callable[[_T], Iterable[str]],
    as_json: bool,
    fields: Callable[[_T], Any] | None = None,
) -> None:
    """Print the result: its lines for people, or JSON for scripts."""
    if as_json:
        print_json(fields(result) if fields else result)
        return
    for line in lines(result):
        say(line)


def print_json(value: Any) -> None:
    """Print what scripts read."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


async def all_of(api: OwnApi, path: str, name: str) -> list[Json]:
    """All rows of a list that comes in pages, `name` in each, in the proxy's order."""
    rows: list[Json] = []
    asked = "limit=500"
    while True:
        page = await api.fields(f"{path}?{asked}")
        rows += page[name]
        if page["next"] is None:
            return rows
        asked = f"limit=500&after={page['next']}"


def session_path(name: str) -> str:
    """The path of the session of this id or name, below /api."""
    return f"sessions/{quote(name, safe='')}"
