"""`palimpsest export` and `import`: sessions of a running proxy as files, and back."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

from palimpsest.cli.reading import Json
from palimpsest.cli.running_proxy import Proxy
from palimpsest.cli.terminal import counted, write
from palimpsest.errors import NameTaken, PalimpsestError, SettingsError, UpstreamUnreachable
from palimpsest.upstream.own_api import OwnApi, fields_of, own_api, session_path

Form: TypeAlias = Literal["json", "jsonl", "markdown", "html"]
_ENDINGS = {"json": "json", "jsonl": "jsonl", "markdown": "md", "html": "html"}
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_CHARS = 60
# Of a digest.
_BRANCH_CHARS = 12
_PAGE = 500


class ExportOptions(NamedTuple):
    """How sessions are exported; `hidden`: with messages that no client saw."""

    form: Form = "json"
    hidden: bool = False


async def exported(proxy: Proxy, name: str, branch: str | None, options: ExportOptions) -> bytes:
    """One session's document."""
    async with own_api(*proxy) as api:
        return await _document(api, name, branch, options)


async def export_all(proxy: Proxy, folder: Path, options: ExportOptions) -> Sequence[Path]:
    """Write every session of the key to files in `folder`, one for each branch; returns the files.

    A file appears under its name when it is complete. SettingsError when the folder cannot be written.
    """
    written = []
    with _writing(folder):
        async with own_api(*proxy) as api:
            async for session in _sessions(api):
                _make(folder)
                found = await api.fields(f"sessions/{session['id']}")
                branches = [branch["branch"] for branch in found["branches"]] or [None]
                for place, branch in enumerate(branches):
                    apart = f"branch-{branch[:_BRANCH_CHARS]}" if place else ""
                    named = file_name(session["name"] or "", session["id"], apart)
                    path = folder / f"{named}.{_ENDINGS[options.form]}"
                    _write(path, await _document(api, session["id"], branch, options))
                    written.append(path)
    return written


def put(document: bytes, to: Path | None) -> None:
    """Write the document to the file, or to standard output. SettingsError when that fails."""
    if to is None:
        write(document)
        return
    with _writing(to):
        _write(to, document)


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise SettingsError(f"export: {place} cannot be written ({failure.strerror}).") from failure


async def _sessions(api: OwnApi) -> AsyncIterator[Json]:
    """All sessions of the key, newest first."""
    asked: dict[str, str | int] = {"limit": _PAGE}
    while True:
        page = await api.fields(f"sessions?{urlencode(asked)}")
        for session in page["sessions"]:
            yield session
        if page["next"] is None:
            return
        asked["after"] = page["next"]


async def _document(api: OwnApi, name: str, branch: str | None, options: ExportOptions) -> bytes:
    asked = {"format": options.form, "hidden": str(options.hidden).lower()} | (
        {"branch": branch} if branch else {}
    )
    return await api.content(f"{session_path(name)}/export?{urlencode(asked)}")


def file_name(*parts: str) -> str:
    """A name of one file made of texts from outside, as far as any file system takes them, dots between."""
    named = [_UNSAFE.sub("-", part).strip("-.")[:_NAME_CHARS] for part in parts]
    return ".".join(filter(None, named)) or "unnamed"


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


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


def documents(paths: Sequence[Path]) -> list[Path]:
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


async def imported(proxy: Proxy, paths: Sequence[Path]) -> list[Json]:
    """Import the files one after the other; one that is refused does not stop the others."""
    async with own_api(*proxy) as api:
        return [{"file": str(path), **await _imported(api, path)} for path in paths]


async def _imported(api: OwnApi, path: Path) -> Json:
    """The session that was made. `problem`: why there is none; `is_there`: its name was there before."""
    nothing = {"session": None, "messages": 0, "is_there": False, "problem": None}
    try:
        made = fields_of(await api.post_document("sessions/import", _read(path)))
        return nothing | {"session": made["session"], "messages": made["messages"]}
    except NameTaken:
        return nothing | {"is_there": True}
    except OSError as failure:
        return nothing | {"problem": f"cannot be read ({failure.strerror})"}
    except UpstreamUnreachable:
        raise
    except PalimpsestError as refused:
        return nothing | {"problem": refused.message}


def _read(path: Path) -> bytes:
    return path.read_bytes()


def lines_of_import(told: Sequence[Json]) -> Iterator[str]:
    """A line for each file."""
    for one in told:
        if one["session"]:
            yield f"{one['file']}: {counted(one['messages'], 'message')}, session {one['session']}"
        else:
            yield f"{one['file']}: {one['problem'] or 'a session of this name is there already'}"
