"""`palimpsest export` and `import`: sessions of a running proxy as files, and back."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlencode

import typer

from palimpsest.cli.command import (
    AsJson,
    Json,
    all_of,
    command,
    print_result,
    proxy_of_caller,
    proxy_of_reader,
    session_path,
)
from palimpsest.cli.terminal import counted, say, write
from palimpsest.errors import NameTaken, PalimpsestError, SettingsError, UpstreamUnreachable

if TYPE_CHECKING:
    from palimpsest.upstream.own_api import OwnApi

_ENDINGS = {"json": "json", "jsonl": "jsonl", "markdown": "md", "html": "html"}
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_CHARS = 60
# Of a digest.
_BRANCH_CHARS = 12


@command(proxy_of_reader)
async def export(
    api: OwnApi,
    session: Annotated[str | None, typer.Argument(help="Id or name of the session.")] = None,
    to: Annotated[Path | None, typer.Option(help="File to write; with --all a folder.")] = None,
    form: Annotated[
        Literal["json", "jsonl", "markdown", "html"],
        typer.Option("--format", help="json can be imported; the others are for scripts and people."),
    ] = "json",
    everything: Annotated[bool, typer.Option("--all", help="Every session and branch of the key.")] = False,
    branch: Annotated[str | None, typer.Option(help="Another branch than the newest.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Messages that no client saw, too.")] = False,
) -> None:
    """Print a session whole, or write all sessions to a folder."""
    if bool(session) is everything or (everything and (to is None or branch)):
        raise SettingsError("command line: export takes a SESSION, or --all with --to FOLDER.")
    asked = {"format": form, "hidden": str(hidden).lower()}
    if session is None:
        assert to is not None
        with _writing(to):
            say(f"{to}: {counted(await _export_all(api, to, asked), 'file')}.")
        return
    document = await _document(api, session, branch, asked)
    if to is None:
        write(document)
        return
    with _writing(to):
        _write(to, document)


async def _export_all(api: OwnApi, folder: Path, asked: Mapping[str, str]) -> int:
    """Write every session of the key to files in `folder`, one for each branch; returns how many.

    A file appears under its name when it is complete.
    """
    written = 0
    for session in await all_of(api, "sessions", "sessions"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else waits
        found = await api.fields(f"sessions/{session['id']}")
        branches = [branch["branch"] for branch in found["branches"]] or [None]
        for place, branch in enumerate(branches):
            apart = f"branch-{branch[:_BRANCH_CHARS]}" if place else ""
            # As far as any file system takes texts from outside.
            parts = (session["name"] or "", session["id"], apart)
            named = [_UNSAFE.sub("-", part).strip("-.")[:_NAME_CHARS] for part in parts]
            path = folder / f"{'.'.join(filter(None, named)) or 'unnamed'}.{_ENDINGS[asked['format']]}"
            _write(path, await _document(api, session["id"], branch, asked))
            written += 1
    return written


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise SettingsError(f"export: {place} cannot be written ({failure.strerror}).") from failure


async def _document(api: OwnApi, name: str, branch: str | None, asked: Mapping[str, str]) -> bytes:
    query = urlencode({**asked, "branch": branch} if branch else asked)
    return await api.content(f"{session_path(name)}/export?{query}")


def _write(path: Path, content: bytes) -> None:
    """A device or a pipe is written to, not replaced, and a symlink's target instead of the link."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    file = Path(os.path.realpath(path))
    # The file has its name when it is complete; the folder is readable by its owner only, and so is the file.
    with tempfile.TemporaryDirectory(prefix=".exporting-", dir=file.parent) as folder:
        made = Path(folder) / "document"
        made.touch(mode=0o600)
        made.write_bytes(content)
        made.replace(file)


@command(proxy_of_caller)
async def import_(
    api: OwnApi,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Exports, or folders of them.")],
    as_json: AsJson = False,
) -> None:
    """Import sessions that `export` wrote. A name that is there already is left alone.

    One without a name is made anew each time. Exits with 1 when a file was refused; the others are imported.
    """
    told = [{"file": str(path), **await _imported(api, path)} for path in _documents(files)]
    print_result(told, _lines_of_import, as_json)
    raise typer.Exit(any(one["problem"] for one in told))


def _documents(paths: Sequence[Path]) -> list[Path]:
    """The files, and those ending in .json of the folders. SettingsError for what is not there."""
    found: list[Path] = []
    for path in paths:
        try:
            if path.is_dir():
                found += sorted(path.glob("*.json"))
            elif path.is_file():
                found.append(path)
            else:
                raise SettingsError(f"import: there is no file {path}.")
        except OSError as failure:
            raise SettingsError(f"import: {path} cannot be read ({failure.strerror}).") from failure
    return found


async def _imported(api: OwnApi, path: Path) -> Json:
    """The session that was made. `problem`: why there is none; `is_there`: its name was there before."""
    nothing = {"session": None, "messages": 0, "is_there": False, "problem": None}
    try:
        document = path.read_bytes()  # noqa: ASYNC240 - nothing else waits
        made = await api.fields("sessions/import", "POST", document)
        return nothing | {"session": made["session"], "messages": made["messages"]}
    except NameTaken:
        return nothing | {"is_there": True}
    except OSError as failure:
        return nothing | {"problem": f"cannot be read ({failure.strerror})"}
    except UpstreamUnreachable:
        raise
    except PalimpsestError as refused:
        return nothing | {"problem": refused.message}


def _lines_of_import(told: Sequence[Json]) -> Iterator[str]:
    """A line for each file."""
    for one in told:
        if one["session"]:
            yield f"{one['file']}: {counted(one['messages'], 'message')}, session {one['session']}"
        else:
            yield f"{one['file']}: {one['problem'] or 'a session of this name is there already'}"
