"""Every exception this program raises.

    PalimpsestError
    |-- RequestError                 the client's request is at fault: 4xx, nothing was forwarded
    |   |-- InvalidJson              malformed, NaN, duplicate keys
    |   |   `-- NestedTooDeep        a request is forwarded unrecorded
    |   |-- NotUnderstood            no conversation can be read from it: forwarded unrecorded
    |   |-- InvalidField             a header or path of ours has the wrong value; `param` names it
    |   |-- InvalidParameter         a parameter or field of one of our own endpoints
    |   |-- InvalidCoding            400: the body does not decode by its Content-Encoding
    |   |-- UnsupportedCoding        415: a Content-Encoding that is not supported
    |   |-- BodyTooLarge             413
    |   |-- RequestTimeout           408: no byte of the body arrived in time
    |   |-- RepeatedHeader           a header that identifies the caller occurs twice
    |   |-- ClientLeft               the client hung up while its body was being read; nobody sees this
    |   |-- NotFound                 it does not exist or belongs to another caller (the same answer)
    |   |   `-- WrongBaseUrl         a path of the API that lacks the prefix /v1
    |   |-- ErasedSession            410: the conversation was erased and must not be stored again
    |   |-- MethodNotAllowed         405: the path exists, not with this method
    |   |-- Unauthorized             401
    |   |   `-- WrongAdminKey        the operator's endpoints, without the admin key
    |   |-- HostNotAllowed           403: the Host header is not one of the proxy's names
    |   |-- OriginNotAllowed         403: the request comes from another site's page
    |   |-- UnsupportedMediaType     415: the body of one of our own endpoints is not declared as JSON
    |   |-- RecallDisabled           403: the session has no index and no recall tools
    |   |-- NotInstalled             501: an endpoint needs an extra of the package that is missing
    |   |-- Conflict                 409: too many appends are queued, or the epoch changed
    |   |-- NameTaken                409: a session of that name exists already
    |   |-- NothingToRestore         422: no session can be restored from the records
    |   |-- NotUndoable              409: the compaction was undone before, or others build on it
    |   |-- NamespaceUnproven        429: the upstream never accepted the credential; its quota is used up
    |   |-- QuotaExceeded            429: the caller has used what it may use in a day
    |   |-- AdminDisabled            403: the operator's endpoints, and no access.admin_key is set
    |   |-- AdminKeyRefused          403: the admin key, sent where it does not belong
    |   |-- AdminMayNotRead          403: the admin key, to read conversations without access.admin_reads
    |   |-- HeadersTooLarge          431
    |   |-- OpenToolGroup            422: an append does not complete the open tool calls
    |   |-- OtherWire                409: a stored message has no form on the request's API
    |   |-- PinsTooLarge             a message cannot be pinned: the pins would not fit the window
    |   `-- ContextLengthExceeded    what must stay verbatim exceeds a known window (rule 18)
    |-- ServerBusy                   503: the limit of open requests or event streams is reached
    |-- StoreError                   the store could not do what was asked
    |   |-- StoreUnavailable         503: cannot record; nothing was forwarded
    |   |-- AnswerNotStored          503: an answer arrived and could not be recorded; do not retry
    |   `-- SchemaMismatch           start is refused: the database has a schema we do not know
    |-- UpstreamError                no usable answer came from the upstream (never an HTTP error status)
    |   |-- UpstreamUnreachable      502
    |   |-- UpstreamTimeout          504
    |   `-- UpstreamCut              the answer ended before it was complete
    |-- BackgroundFailed             work behind the answers was given up; it is done at a later occasion
    |-- InvalidView                  a bug: a view is less valid than the request; the original goes out
    |-- SummaryRejected              a summarizer's output cannot replace history
    `-- SettingsError                start is refused: names the source, the key and the remedy

An upstream's own error response is not an exception: it passes through unchanged.
"""

from __future__ import annotations

from typing import ClassVar


class PalimpsestError(Exception):
    """Root of the tree. `status` is the HTTP status a client sees, `code` is stable across releases."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestError(PalimpsestError):
    """The request is at fault; nothing was forwarded."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class InvalidJson(RequestError):
    """The body is not the JSON we accept."""

    code = "invalid_json"


class NestedTooDeep(InvalidJson):
    """JSON nested deeper than the parser allows. A completion request is forwarded unrecorded."""

    code = "nested_too_deep"


class NotUnderstood(RequestError):
    """No conversation can be read from the request. It is forwarded unrecorded; no client sees this error."""

    code = "not_understood"


class InvalidField(RequestError):
    """A header or path of this program has a wrong value; `param` names it."""

    code = "invalid_field"


class InvalidParameter(RequestError):
    """A parameter or field of one of our own endpoints has a wrong type or value; `param` names it."""

    code = "invalid_parameter"


class InvalidCoding(RequestError):
    """The body does not decode by its Content-Encoding, or is truncated."""

    code = "invalid_content_encoding"


class UnsupportedCoding(RequestError):
    """The body's Content-Encoding is not supported; the message lists those that are."""

    status = 415
    code = "unsupported_content_encoding"


class BodyTooLarge(RequestError):
    """The body exceeds `limits.body_bytes`, as received or decoded."""

    status = 413
    code = "body_too_large"


class RequestTimeout(RequestError):
    """No byte of the body arrived for `limits.body_idle_seconds`."""

    status = 408
    code = "request_timeout"


class RepeatedHeader(RequestError):
    """A header that identifies the caller occurs twice; guessing which one counts would be unsafe."""

    code = "repeated_header"


class ClientLeft(RequestError):
    """The client hung up while its body was being read."""

    status = 499
    code = "client_left"


class NotFound(RequestError):
    """Does not exist, or belongs to another namespace: the caller cannot tell which."""

    status = 404
    code = "not_found"


class WrongBaseUrl(NotFound):
    """The path exists below `/v1`: the client's base URL lacks that prefix or has another one."""

    code = "wrong_base_url"


class ErasedSession(RequestError):
    """The conversation was erased and blocked: it is not stored again, whoever sends it (rule 30)."""

    status = 410
    code = "session_erased"


class MethodNotAllowed(RequestError):
    """The path exists, but not with this method."""

    status = 405
    code = "method_not_allowed"


class Unauthorized(RequestError):
    """No valid proxy key."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class WrongAdminKey(Unauthorized):
    """The operator's endpoints were asked without `access.admin_key`, or with another key."""

    code = "invalid_admin_key"


class AdminDisabled(RequestError):
    """The operator's endpoints, which answer nobody while `access.admin_key` is not set."""

    status = 403
    code = "admin_disabled"
    type = "authentication_error"


class AdminKeyRefused(RequestError):
    """The admin key was sent to an endpoint that is not the operator's. It goes no further."""

    status = 403
    code = "admin_key_refused"
    type = "authentication_error"


class AdminMayNotRead(RequestError):
    """The admin key was sent to read a caller's conversations, and `access.admin_reads` is off."""

    status = 403
    code = "admin_may_not_read"
    type = "authentication_error"


class HostNotAllowed(RequestError):
    """The `Host` header is not a known name of the proxy: DNS rebinding by a web page (rule 36)."""

    status = 403
    code = "host_not_allowed"


class OriginNotAllowed(RequestError):
    """The request comes from a web page whose origin is not in `server.cors_origins` (rule 36)."""

    status = 403
    code = "origin_not_allowed"


class UnsupportedMediaType(RequestError):
    """A body under `/api` whose content type is not JSON: an HTML form can send the other types."""

    status = 415
    code = "unsupported_media_type"


class RecallDisabled(RequestError):
    """A recall tool is called directly while `recall.enabled` is off (C03)."""

    status = 403
    code = "durable_context_disabled"


class NotInstalled(RequestError):
    """The endpoint needs an extra of the package that is not installed."""

    status = 501
    code = "not_installed"


class Conflict(RequestError):
    """The session is busy, or its epoch has changed."""

    status = 409
    code = "session_busy"


class NameTaken(RequestError):
    """The caller has a session of that name or id already."""

    status = 409
    code = "name_taken"


class NothingToRestore(RequestError):
    """The records hold neither a state nor messages that can be read."""

    status = 422
    code = "nothing_to_restore"


class NotUndoable(RequestError):
    """The compaction was undone before, or another one in force was made from it."""

    status = 409
    code = "not_undoable"


class NamespaceUnproven(RequestError):
    """The upstream never accepted this credential, which has `access.unproven_messages` stored (rule 26)."""

    status = 429
    code = "namespace_unproven"


class QuotaExceeded(RequestError):
    """The key or namespace has used its tokens of the day; it may go on in `retry_seconds`.

    `is_used` is false while some are only reserved, by requests that may use less.
    """

    status = 429
    code = "quota_exceeded"
    # OpenAI's own type for a used-up budget, which frameworks do not retry.
    type = "insufficient_quota"

    def __init__(self, message: str, *, retry_seconds: int, is_used: bool = True) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds
        self.is_used = is_used


class HeadersTooLarge(RequestError):
    """Names and values of the headers exceed 64 kB."""

    status = 431
    code = "headers_too_large"


class OpenToolGroup(RequestError):
    """Appended messages do not complete the tool calls that are open at the head."""

    status = 422
    code = "open_tool_calls"


class OtherWire(RequestError):
    """The session was recorded on another API and contains something that has no form on this one."""

    status = 409
    code = "other_wire"


class PinsTooLarge(RequestError):
    """With this pin, instructions and pins alone would exceed the known window."""

    code = "pins_too_large"


class ContextLengthExceeded(RequestError):
    """What must stay verbatim exceeds the known window (rule 18). Code and message are OpenAI's."""

    code = "context_length_exceeded"


class ServerBusy(PalimpsestError):
    """`limits.concurrent_requests`, or the most streams of events, is reached."""

    status = 503
    code = "server_busy"


class StoreError(PalimpsestError):
    """The store could not do what was asked."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """Cannot record now; nothing was forwarded. Retrying later is safe."""

    status = 503
    code = "store_unavailable"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        # One word for /readyz: what is wrong with the database's file or disk, when that is the cause.
        self.reason = reason


class AnswerNotStored(StoreError):
    """An answer arrived and could not be recorded (rule 15). It is paid for: a retry would pay twice."""

    status = 503
    code = "answer_not_stored"


class SchemaMismatch(StoreError):
    """The database has a schema this program does not know."""

    code = "schema_mismatch"


class UpstreamError(PalimpsestError):
    """No usable answer came from the upstream."""

    status = 502
    code = "upstream_error"
    type = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection, or it was reset before an answer began."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    status = 504
    code = "upstream_timeout"


class UpstreamCut(UpstreamError):
    """The answer ended before it was complete."""

    code = "upstream_cut"


class BackgroundFailed(PalimpsestError):
    """Work in the background raised an error, or its process died over it; no request is at fault."""

    code = "background_failed"


class InvalidView(PalimpsestError):
    """A strict upstream would refuse the view but not the client's own list."""

    code = "invalid_view"


class SummaryRejected(PalimpsestError):
    """A summarizer's output cannot replace history; the message says why and never quotes it."""

    code = "summary_rejected"


class SettingsError(PalimpsestError):
    """Start is refused; the message names the source, the key and the remedy."""

    code = "invalid_settings"
