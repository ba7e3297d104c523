"""Settings of the process itself: server, database, limits, access, logging and telemetry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from palimpsest.core.declared import within
from palimpsest.core.wire.credentials import HEADERS, NOT_CREDENTIALS, QUERY
from palimpsest.settings.fields import Section, advanced, setting, split_url

_SCHEME = re.compile(r"([a-z][a-z0-9+]*)://")


def _database(url: SecretStr) -> SecretStr:
    """The URL of a supported database; `postgres://` is accepted as an alias."""
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
    parts = split_url(given)
    if parts.port == 0 or not parts.path.strip("/"):
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
    """As browsers send it: lower case, no trailing slash. `file://` is the origin of some desktop apps."""
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
        "Loopback, so that nothing is reachable from outside until the operator decides so.",
        within("IP address or host name", min_length=1),
    )
    port: int = setting(
        8000,
        "Port to listen on; 0 takes any free one.",
        "The port in the examples of most OpenAI-compatible servers.",
        within("port number", ge=0, le=65535),
    )
    workers: int = advanced(
        1,
        "How many processes answer (with PostgreSQL only), each with caches and limits of its own.",
        "One process uses one processor; SQLite has one writer, which is in one process.",
        within("processes", ge=1, le=64),
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Further names that are accepted in the Host header; * for any. Always accepted: IP addresses,"
        " localhost, *.localhost, *.internal and host above; beyond loopback also names without a dot,"
        " such as"
        " a container's. Empty in keys mode: any name.",
        "A foreign web page may point its own name at this machine (DNS rebinding); without keys it could"
        " read"
        " everything.",
        "host names",
    )
    cors_origins: tuple[Origin, ...] = setting(
        (),
        "Origins of web pages that may call the proxy, such as http://localhost:3000 or app://obsidian.md;"
        " null for pages without one. In keys mode also *.",
        "Any page in a browser can send requests to this machine; programs send no Origin header.",
        "origins",
    )
    shutdown_seconds: int = advanced(
        30,
        "How long answers in progress may continue after a stop signal; then they are cut and stored as"
        " incomplete.",
        "Most answers end in this time, and orchestrators that wait 30 s by default need not kill the"
        " process.",
        within("seconds", ge=0, le=3600),
    )
    keep_alive_seconds: int = advanced(
        75,
        "How long an idle client connection stays open.",
        "Above the 60 s of common load balancers: they close first, so no request is sent to a closed"
        " socket.",
        within("seconds", ge=1, le=3600),
    )


class Database(Section):
    """Where conversations are stored."""

    url: DatabaseUrl = setting(
        SecretStr("sqlite:///data/palimpsest.db"),
        "Database: sqlite:///relative/path, sqlite:////absolute/path, or postgresql://user:password@host/name.",
        "SQLite needs no server. A relative path starts at the working folder.",
        "URL",
    )
    data_folder: Path = setting(
        Path("data"),
        "Folder of the pepper, the secret that credentials are hashed with. Back it up with the database.",
        "Beside the default database. Without the pepper no caller's conversations are found again.",
        "path",
    )
    synchronous: Literal["full", "normal"] = advanced(
        "full",
        "SQLite's durability: full survives a power cut, normal may lose the newest commits.",
        "In 200 simulated power cuts normal lost an acknowledged message in 176, full in none.",
    )
    erase_reserve_bytes: int = advanced(
        32_000_000,
        "Disk space reserved for erasing, in a file beside the SQLite database. It is freed when an erase"
        " meets a full disk, and reserved again when twice as much is free. 0: none.",
        "Erasing writes about as much as it erases; without a reserve a full disk would prevent it.",
        within("bytes", ge=0),
    )
    store_deadline_seconds: float = advanced(
        5.0,
        "How long a request waits for the database before it counts as down.",
        "A commit takes milliseconds; a client should learn of a dead disk before its own timeouts.",
        within("seconds", gt=0, le=300),
    )
    heartbeat_timeout_seconds: float = advanced(
        10.0,
        "A server without a heartbeat for so long counts as dead for others on the same PostgreSQL.",
        "They then store its partial answers. Longer than a busy process may block.",
        within("seconds", ge=0.3, le=3600),
    )
    on_store_failure: Literal["refuse", "passthrough"] = setting(
        "refuse",
        "When a request cannot be recorded: refuse answers 503, passthrough forwards it and says so.",
        "Nothing is forwarded unrecorded unless the operator prefers answers to records.",
    )

    @property
    def pepper_file(self) -> Path:
        """The file of the pepper."""
        return self.data_folder / "pepper"


class Limits(Section):
    """Limits on requests, checked before they cost anything."""

    body_bytes: int = setting(
        64 * 1024 * 1024,
        "Largest request body that is recorded, decoded; unrecorded requests may have any size. Unfinished"
        " bodies together hold four times as much; further ones get 503 with retry-after.",
        "A 1M-token conversation is about 5 MB; the rest is room for images.",
        within("bytes", ge=1024),
    )
    answer_bytes: int = advanced(
        64 * 1024 * 1024,
        "Largest answer assembled for storing; a longer one is relayed whole and stored as incomplete.",
        "The same as a request, so that every stored answer can be sent back.",
        within("bytes", ge=1024),
    )
    frame_bytes: int = advanced(
        16 * 1024 * 1024,
        "Largest single frame of a streamed answer.",
        "Images come in one frame; an endless line must not fill the memory.",
        within("bytes", ge=1024),
    )
    json_depth: int = advanced(
        128,
        "Deepest nesting of JSON in a request.",
        "Real requests stay below 30; Python's own parsers give up near 1,000.",
        within("levels", ge=8, le=500),
    )
    messages: int = advanced(
        20_000,
        "Most messages in one request.",
        "Ten times the longest agent session seen; each message costs a digest and a row.",
        within("messages", ge=1),
    )
    message_cache_bytes: int = advanced(
        24 * 1024 * 1024,
        "Memory for parsed and counted messages, so that a resent history is not parsed again.",
        "About twenty active sessions of 100,000 tokens; those of others are parsed again.",
        within("bytes", ge=1024 * 1024),
    )
    body_idle_seconds: float = advanced(
        60.0,
        "How long a request's body may arrive at less than 500 bytes a second on average.",
        "Slow uploads may take any time; a byte a minute must not hold a connection for ever.",
        within("seconds", gt=0, le=3600),
    )
    concurrent_requests: int = setting(
        1_000,
        "Requests answered at the same time; further ones get 503 with retry-after.",
        "Each holds a connection to the upstream and its bodies in memory.",
        within("requests", ge=1),
    )
    concurrent_uploads: int = advanced(
        1_000,
        "Requests whose body has not arrived yet; further ones get 503 with retry-after.",
        "Counted separately: bodies that arrive slowly, or never, must not block other requests.",
        within("requests", ge=1),
    )
    caller_share: float = advanced(
        0.8,
        "Share of concurrent_requests and concurrent_uploads that a single active caller may use; several"
        " callers leave the same part of the rest free. All callers whose credentials the upstream has never"
        " accepted count as one. 1: everything.",
        "No caller can use up the capacity, and a single user hardly notices the limit.",
        within("share", gt=0, le=1),
    )


# RFC 6750, 2.1.
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")


def _admin_key(key: SecretStr) -> SecretStr:
    if not _BEARER.fullmatch(key.get_secret_value()):
        raise ValueError(
            "must have at least 16 letters, digits or . _ ~ + / -, such as `openssl rand -hex 24` prints"
        )
    return key


class AccessSettings(Section):
    """Who may use the proxy, and what distinguishes callers."""

    mode: Literal["open", "keys"] = setting(
        "open",
        "open: every credential has its own namespace; keys: only keys issued by this proxy are accepted.",
        "open needs no setup on one's own machine. An operator's upstream key beyond loopback requires keys.",
    )
    realm: str = advanced(
        "default",
        "Name mixed into every caller's namespace.",
        "One realm, so that a model moved to another upstream keeps its sessions; change it to separate"
        " them.",
        within("name", min_length=1, max_length=200),
    )
    identity_headers: tuple[str, ...] = setting(
        (),
        "Headers, set by a trusted front end, that distinguish the users of one key.",
        "Empty: a header that any client can send must not decide whose conversations are read.",
        "header names",
    )
    credential_headers: tuple[str, ...] = advanced(
        HEADERS,
        "Headers that are credentials: callers that differ in one of them share nothing, and none is sent"
        " upstream together with a key of yours. Any other header, cookie or query field whose name looks"
        " like"
        " one (auth, key, token, secret, password, jwt; of cookies also session) is one, too. The first four"
        " always count; cookie: the whole header.",
        "Common servers and gateways use these. If one were missing, two callers could read each other's"
        " conversations.",
        "header names",
    )
    credential_query: tuple[str, ...] = advanced(
        QUERY,
        "Fields of a request's query that are credentials in the same way; _ is the same as -.",
        "Gemini, Azure's API Management and many gateways accept a key there.",
        "field names",
    )
    not_credentials: tuple[str, ...] = advanced(
        NOT_CREDENTIALS,
        "Headers, cookies and query fields that look like credentials and are none; * matches anything. The"
        " headers of sessions.headers and access.identity_headers are none, too.",
        "A value that changes with every request would make every request a separate caller.",
        "names or patterns",
    )
    allow_off: bool = setting(
        True,
        "Whether a request may contain X-Palimpsest: off, which forwards it uncompacted but recorded.",
        "The quickest way to find out whether compaction is the cause of a problem.",
    )
    daily_tokens: int = advanced(
        0,
        "Tokens of prompts and answers that one namespace may use per UTC day; 0: no limit. A key may have a"
        " limit of its own (palimpsest keys).",
        "One caller in a loop must not use up what all have. Beyond it requests get 429 until midnight.",
        within("tokens", ge=0, le=10**12),
    )
    admin_key: Annotated[SecretStr, AfterValidator(_admin_key)] | None = advanced(
        None,
        "Key of the operator, sent as a bearer token: it opens /api/admin, with sizes and use of all"
        " namespaces. At least 16 letters, digits or . _ ~ + / -. Unset: nothing answers there.",
        "Nobody sees that other callers exist unless the operator decides so. A short key could be guessed.",
        "key",
    )
    admin_reads: bool = advanced(
        False,
        "Whether the admin key may also read a namespace's conversations, under /api with the header"
        " X-Palimpsest-Namespace. Each such read is logged.",
        "Who runs a proxy need not be who may read what is said through it.",
    )
    unproven_messages: int = advanced(
        1_000,
        "Most messages a namespace may store before its credential got a 2xx.",
        "A long history at first contact fits; a flood does not.",
        within("messages", ge=1),
    )


class Retention(Section):
    """How long conversations are kept. What is beyond is erased for good, in the background."""

    days: int = advanced(
        0,
        "Sessions whose newest turn is older are erased; 0: none.",
        "Nothing is erased unless somebody asks for it.",
        within("days", ge=0, le=36_500),
    )
    max_bytes: int = advanced(
        0,
        "A namespace whose messages take more loses its oldest sessions until it is below; 0: no limit.",
        "A disk has an end. Bytes of messages, each text once; the database takes about twice as many.",
        within("bytes", ge=0),
    )


class Logging(Section):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info",
        "Lowest level that is written.",
        "One line per exchange; contents and keys are never logged at any level.",
    )
    format: Literal["text", "json"] = setting(
        "text", "text for people, json for log collectors.", "Most first runs are in a terminal."
    )


def _collector(url: str) -> str:
    """The collector's base URL, without trailing slashes."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError("must be a whole URL such as http://localhost:4318")
    return url.rstrip("/")


class Telemetry(Section):
    """Metrics and traces, for operators: docs/monitoring.md."""

    metrics: bool = advanced(
        True,
        "Whether requests are counted, and GET /metrics answers in Prometheus' format.",
        "Counting costs some microseconds a request, and without a key only this machine may read it.",
    )
    metrics_key: SecretStr | None = advanced(
        None,
        "Key that every reader of /metrics must send as a bearer token. Unset: only callers on this machine"
        " may read them.",
        "Totals of all callers are the operator's to read; a proxy that strangers reach must not show them.",
        "key",
    )
    otlp_url: Annotated[str, AfterValidator(_collector)] | None = advanced(
        None,
        "Base URL of an OpenTelemetry collector (OTLP over HTTP), such as http://localhost:4318, which gets"
        " one span an exchange. Unset: no traces.",
        "Needs the extra palimpsest[otel] and a collector of yours; nothing is sent anywhere unasked.",
        "URL",
    )
    trace_content: bool = advanced(
        False,
        "Whether spans hold what was asked and answered, each cut at 50,000 characters.",
        "Conversations leave the database only if the operator decides so.",
    )
