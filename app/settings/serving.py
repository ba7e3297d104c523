"""Settings of the process itself: where it listens, where it stores, what it accepts, what it logs.

Knows nothing of upstreams nor of compaction.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from app.core.wire.credentials import HEADERS, NOT_CREDENTIALS, QUERY
from app.settings.fields import Section, setting

_SCHEME = re.compile(r"([a-z][a-z0-9+]*)://")


def _database(url: SecretStr) -> SecretStr:
    """An address of a database that is served; what `postgres://` is to others, it is here."""
    given = url.get_secret_value()
    scheme = _SCHEME.match(given)
    if scheme is None:
        raise ValueError(
            "must begin with sqlite:/// or postgresql://; a file is written sqlite:///path/to/file.db"
        )
    if scheme[1] == "sqlite":
        _check_file(given)
        return url
    if scheme[1] not in ("postgres", "postgresql"):
        raise ValueError(
            f"{scheme[1]} is not served here; use sqlite:///path or postgresql://user:password@host/name"
        )
    parts = urlsplit(given)
    if (parts.port or 1) < 1 or not parts.path.strip("/"):
        raise ValueError("must name a database, such as postgresql://user:password@host:5432/name")
    return SecretStr("postgresql" + given[len(scheme[1]) :])


def _check_file(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    if path == url:
        raise ValueError(
            "a file is written with three slashes, sqlite:///path, or four from the root, sqlite:////path"
        )
    if not path or path.endswith("/") or path == ":memory:":
        raise ValueError("must name a file, such as sqlite:///data/palimpsest.db: conversations are kept")
    if "?" in path:
        raise ValueError("must name a file alone, without a question mark and what follows")


DatabaseUrl = Annotated[SecretStr, AfterValidator(_database)]


def _origin(value: str) -> str:
    """As browsers send it: in lower case, without a closing slash. `file://`: what some desktop apps are."""
    if value in ("*", "null", "file://"):
        return value
    parts = urlsplit(value)
    if not parts.scheme or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise ValueError("must be an origin such as http://localhost:3000")
    return f"{parts.scheme}://{parts.netloc}".lower()


Origin = Annotated[str, AfterValidator(_origin)]


class Server(Section):
    """Where the proxy listens."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on.",
        "Loopback, so that nothing is reachable from outside until somebody decides so.",
        unit="IP address or host name",
        min_length=1,
    )
    port: int = setting(
        8000,
        "Port to listen on; 0 takes any free one.",
        "What the examples of most OpenAI-compatible servers use.",
        unit="port number",
        ge=0,
        le=65535,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Further names in the Host header that are answered to; * for any. Always: IP addresses, localhost,"
        " *.localhost, *.internal and host above; beyond loopback also names without a dot, such as a"
        " container's. Empty in keys mode: any name.",
        "A stranger's page may point its own name at this machine (DNS rebinding); without keys it would read"
        " everything.",
        unit="host names",
    )
    cors_origins: tuple[Origin, ...] = setting(
        (),
        "Origins of web pages that may speak to the proxy, such as http://localhost:3000 or app://obsidian.md;"
        " null for pages without one. In keys mode also *.",
        "Any page in a browser can send requests to this machine; programs send no Origin and are not asked.",
        unit="origins",
    )
    shutdown_seconds: int = setting(
        30,
        "How long answers under way may go on after a stop signal; then they are cut, stored as incomplete.",
        "Most answers end within it, and orchestrators that wait 30 s by default need not kill the process.",
        unit="seconds",
        ge=0,
        le=3600,
    )
    keep_alive_seconds: int = setting(
        75,
        "How long an idle client connection stays open.",
        "Above the 60 s of common load balancers: they close first, and no request meets a closed socket.",
        unit="seconds",
        ge=1,
        le=3600,
    )


class Database(Section):
    """Where conversations are stored."""

    url: DatabaseUrl = setting(
        SecretStr("sqlite:///data/palimpsest.db"),
        "Database: sqlite:///relative/path, sqlite:////absolute/path, or postgresql://user:password@host/name.",
        "An embedded database needs no server; a relative path starts at the working folder.",
        unit="URL",
    )
    data_folder: Path = setting(
        Path("data"),
        "Folder of the pepper, the secret that credentials are hashed with. Back it up with the database.",
        "Beside the default database; without the pepper nobody's conversations are found again.",
        unit="path",
    )
    synchronous: Literal["full", "normal"] = setting(
        "full",
        "SQLite's durability: full survives a power cut, normal may lose the newest commits.",
        "In 200 simulated power cuts normal lost an acknowledged message in 176, full in none.",
        unit="full or normal",
    )
    rewrite_bytes: int = setting(
        500_000_000,
        "A SQLite file of at most so many bytes is written anew after something was erased, so that no copy"
        " of it is left between its pages. 0: never.",
        "Whoever writes waits meanwhile: 0.4 s for each 100 MB (measured), and the deadline below is 5 s.",
        unit="bytes",
        ge=0,
    )
    reserve_bytes: int = setting(
        32_000_000,
        "Room on a SQLite file's disk that is kept for erasing, in a file beside it: given up when an erase"
        " meets a full disk, made again when there is twice as much. 0: none.",
        "Erasing writes about as much as it erases; without it a full disk could not even be erased from.",
        unit="bytes",
        ge=0,
    )
    scrub_again_seconds: float = setting(
        60.0,
        "When something held up the scrub of what was erased, it is tried again after a second, then after"
        " twice as long each time, and at last every so many seconds; at once when something else is erased.",
        "A reader is mostly gone in a second; one that stays for hours must not cost an attempt each second.",
        unit="seconds",
        ge=1,
        le=3600,
    )
    store_deadline_seconds: float = setting(
        5.0,
        "How long a request waits for the database before it counts as down.",
        "A commit takes milliseconds; a client should hear of a dead disk well before its own 10 s habits.",
        unit="seconds",
        gt=0,
        le=300,
    )
    server_seconds: float = setting(
        10.0,
        "After so long without a sign of life a server counts as dead for others on the same PostgreSQL.",
        "They then keep what there is of its answers. Longer than a busy process stands still.",
        unit="seconds",
        ge=0.3,
        le=3600,
    )
    on_store_failure: Literal["refuse", "passthrough"] = setting(
        "refuse",
        "When a request cannot be recorded: refuse answers 503, passthrough forwards it and says so.",
        "Nothing is forwarded that is not stored, unless the operator prefers answers to records.",
        unit="refuse or passthrough",
    )

    @property
    def pepper_file(self) -> Path:
        """Where the pepper stands."""
        return self.data_folder / "pepper"


class Limits(Section):
    """What is refused before it costs anything."""

    body_bytes: int = setting(
        64 * 1024 * 1024,
        "Largest request body that is recorded, decoded; what only passes through may be of any size.",
        "A 1M-token conversation is about 5 MB; the rest is room for images.",
        unit="bytes",
        ge=1024,
    )
    answer_bytes: int = setting(
        64 * 1024 * 1024,
        "Largest answer assembled for storing; a longer one is relayed whole and stored as incomplete.",
        "The same as a request, so that every stored answer can be sent back.",
        unit="bytes",
        ge=1024,
    )
    frame_bytes: int = setting(
        16 * 1024 * 1024,
        "Largest single frame of a streamed answer.",
        "Images come in one frame; an endless line must not fill the memory.",
        unit="bytes",
        ge=1024,
    )
    depth: int = setting(
        128,
        "How deep JSON in a request may be nested.",
        "Real requests stay below 30; Python's own parsers give up near 1,000.",
        unit="levels",
        ge=8,
        le=500,
    )
    messages: int = setting(
        20_000,
        "Most messages in one request.",
        "Ten times the longest agent session seen; each message costs a digest and a row.",
        unit="messages",
        ge=1,
    )
    message_cache_bytes: int = setting(
        128 * 1024 * 1024,
        "Memory for messages that are parsed and counted, so that a resent history is not read again.",
        "About a dozen active sessions of a million tokens, or a hundred of 100,000.",
        unit="bytes",
        ge=1024 * 1024,
    )
    header_bytes: int = setting(
        64 * 1024,
        "Largest sum of header names and values of a request.",
        "Other servers accept 8 to 32 kB; large cookies and traces still fit.",
        unit="bytes",
        ge=1024,
    )
    body_idle_seconds: float = setting(
        60.0,
        "How long a request's body may stand still, that is, bring less than 500 bytes a second on average.",
        "A slow upload takes what it takes; a byte a minute must not hold a connection for ever.",
        unit="seconds",
        gt=0,
        le=3600,
    )
    concurrent_requests: int = setting(
        1_000,
        "Requests answered at the same time; further ones get 503 with retry-after.",
        "Each holds a connection to the upstream and its bodies in memory.",
        unit="requests",
        ge=1,
    )
    concurrent_uploads: int = setting(
        1_000,
        "Requests whose body has not arrived yet; further ones get 503 with retry-after.",
        "Counted apart: bodies that come slowly, or never, must not take the places of the others.",
        unit="requests",
        ge=1,
    )
    caller_share: float = setting(
        0.8,
        "Share of both that one caller may hold while it is alone; several leave the same part of the rest."
        " All whose credentials the upstream has never accepted count as one. 1: all of it.",
        "Nobody can take every place, and a single user hardly notices.",
        unit="share",
        gt=0,
        le=1,
    )
    event_streams: int = setting(
        100,
        "Streams of events open at the same time, half of them of one namespace; further ones get 503 with "
        "retry-after.",
        "Each holds a connection and asks the database once a second.",
        unit="streams",
        ge=0,
        le=100_000,
    )
    import_events: int = setting(
        100_000,
        "Most events of a session that is imported.",
        "Each becomes a row or a message; five times the most messages of a request.",
        unit="events",
        ge=1,
        le=1_000_000,
    )


class Access(Section):
    """Who may use the proxy, and what makes two callers one."""

    mode: Literal["open", "keys"] = setting(
        "open",
        "open: every credential is a namespace of its own; keys: only keys issued by this proxy are let in.",
        "Nothing to set up on one's own machine. An operator's upstream key beyond loopback needs keys.",
        unit="open or keys",
    )
    realm: str = setting(
        "default",
        "Name mixed into every caller's namespace.",
        "One realm, so that a model moved to another upstream keeps its sessions; change it to part them.",
        unit="name",
        min_length=1,
        max_length=200,
    )
    identity_headers: tuple[str, ...] = setting(
        (),
        "Headers, set by a trusted front end, that tell apart the users behind one key.",
        "Empty: a header anybody can send must not decide whose conversations are read.",
        unit="header names",
    )
    credential_headers: tuple[str, ...] = setting(
        HEADERS,
        "Headers that are credentials: callers who differ in one of them share nothing, and none goes"
        " upstream beside a key of yours. So is any other header, cookie or query field whose name looks like"
        " one (auth, key, token, secret, password, jwt; of cookies also session). The first four always"
        " count; cookie: the whole header.",
        "What the servers and gateways in use take. One too few and two callers read each other.",
        unit="header names",
    )
    credential_query: tuple[str, ...] = setting(
        QUERY,
        "The same of fields of a request's query; _ is the same as -.",
        "Gemini, Azure's API Management and many gateways take a key there.",
        unit="field names",
    )
    not_credentials: tuple[str, ...] = setting(
        NOT_CREDENTIALS,
        "Headers, cookies and query fields that look like credentials and are none; * stands for anything."
        " So are the headers of sessions.headers and access.identity_headers.",
        "A value that changes at every request would make every request a caller of its own.",
        unit="names or patterns",
    )
    allow_off: bool = setting(
        True,
        "Whether a request may carry X-Palimpsest: off, which passes it through uncompacted but recorded.",
        "The quickest way to find out whether compaction is the cause of a problem.",
        unit="true or false",
    )
    unproven_seconds: int = setting(
        3_600,
        "How long a namespace whose credential never got a 2xx from the upstream is kept.",
        "Made-up keys must not fill the disk; an hour covers an upstream that is down.",
        unit="seconds",
        ge=60,
    )
    unproven_messages: int = setting(
        1_000,
        "Most messages a namespace may store before its credential got a 2xx.",
        "A long history at first contact fits; a flood does not.",
        unit="messages",
        ge=1,
    )


class Logging(Section):
    """What operators read."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info",
        "Least severe entry that is written.",
        "One line for each exchange; contents and keys are never logged at any level.",
        unit="debug, info, warning or error",
    )
    format: Literal["text", "json"] = setting(
        "text",
        "text for people, json for log collectors.",
        "Whoever starts it first reads it in a terminal.",
        unit="text or json",
    )
