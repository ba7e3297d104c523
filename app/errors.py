"""Every exception this program raises.

    PalimpsestError
    |-- RequestError                 the client's request is at fault: 4xx, nothing was forwarded
    |   |-- InvalidJson              malformed, NaN, duplicate keys
    |   |   `-- NestedTooDeep        of a request: goes on unrecorded
    |   |-- NotUnderstood            holds no conversation that can be read: goes on unrecorded
    |   |-- InvalidField             a header or path of ours has the wrong value; `param` names it
    |   |-- InvalidParameter         422: a parameter or field of one of our own endpoints
    |   |-- InvalidCoding            400: the body is not of the content coding it is said to be
    |   |-- UnsupportedCoding        415: a content coding of the body that is not read here
    |   |-- BodyTooLarge             413
    |   |-- RequestTimeout           408: the body stood still
    |   |-- RepeatedHeader           a header that decides who is asking stands twice
    |   |-- ClientLeft               the client hung up while its body was being read; nobody sees this
    |   |-- NotFound                 what does not exist, or is not the caller's (the same answer)
    |   |   `-- WrongBaseUrl         a path of the API that does not stand below /v1
    |   |-- ErasedSession            410: the conversation was erased, and is not to come back
    |   |-- MethodNotAllowed         405: the path exists, not with this method
    |   |-- Unauthorized             401
    |   |-- HostNotAllowed           403: the request names the proxy by a name that is not its own
    |   |-- OriginNotAllowed         403: the request comes from another site's page
    |   |-- UnsupportedMediaType     415: a body of one of our own endpoints that is not said to be JSON
    |   |-- RecallDisabled           403: the session has no index and no tools of recall
    |   |-- Conflict                 409: too many appends wait, an epoch moved on
    |   |-- NameTaken                409: a session of that name is there already
    |   |-- NothingToRestore         422: no session can be made of the records
    |   |-- NotUndoable              409: a compaction that was undone before, or that others build on
    |   |-- NamespaceUnproven        429: the upstream never accepted the credential, and its share is used up
    |   |-- HeadersTooLarge          431
    |   |-- OpenToolGroup            422: an append does not complete the open tool calls
    |   |-- OtherWire                409: a stored message cannot be told on the wire of the request
    |   |-- PinsTooLarge             a message cannot be pinned: the pinned set would not fit the window
    |   `-- ContextLengthExceeded    what must stay verbatim exceeds a known window (rule 18)
    |-- ServerBusy                   503: as many requests or streams of events as are allowed are open
    |-- StoreError                   the store could not do what was asked
    |   |-- StoreUnavailable         503: cannot record; nothing was forwarded
    |   |-- AnswerNotStored          503: an answer came and could not be recorded; not to be asked for again
    |   `-- SchemaMismatch           start is refused: the database has a schema we do not know
    |-- UpstreamError                no usable answer came from the upstream (never an HTTP error status)
    |   |-- UpstreamUnreachable      502
    |   |-- UpstreamTimeout          504
    |   `-- UpstreamCut              the answer ended before it was complete
    |-- InvalidView                  a bug: a view is less valid than the request; the original goes out
    |-- SummaryRejected              what a summarizer returned cannot stand for history; `reason`
    `-- SettingsError                start is refused: says the source, the key and the remedy

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
    """JSON nested deeper than it is read here. A request for an answer goes to the upstream unrecorded."""

    code = "nested_too_deep"


class NotUnderstood(RequestError):
    """No conversation can be read from the request: it goes to the upstream unrecorded, nobody sees this."""

    code = "not_understood"


class InvalidField(RequestError):
    """A header or a path that is meant for this program has a wrong value; `param` names it."""

    code = "invalid_field"


class InvalidParameter(RequestError):
    """A parameter or field of one of our own endpoints has a wrong type or value; `param` names it."""

    status = 422
    code = "invalid_parameter"


class InvalidCoding(RequestError):
    """The body is not of the coding that its Content-Encoding names, or breaks off in the middle of it."""

    code = "invalid_content_encoding"


class UnsupportedCoding(RequestError):
    """The body's Content-Encoding is none that is read here; the answer says which are."""

    status = 415
    code = "unsupported_content_encoding"


class BodyTooLarge(RequestError):
    """The body exceeds `limits.body_bytes`, as it came or with its content coding undone."""

    status = 413
    code = "body_too_large"


class RequestTimeout(RequestError):
    """The body stood still for `limits.body_idle_seconds`."""

    status = 408
    code = "request_timeout"


class RepeatedHeader(RequestError):
    """A header that decides who is asking stands twice: which one counts is not ours to guess."""

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
    """What is asked for stands below `/v1`: the client's base URL lacks it, or has something else there."""

    code = "wrong_base_url"


class ErasedSession(RequestError):
    """The conversation was erased and blocked: it is not stored again, whoever sends it (rule 30)."""

    status = 410
    code = "session_erased"


class MethodNotAllowed(RequestError):
    """There is such a path, but not with this method."""

    status = 405
    code = "method_not_allowed"


class Unauthorized(RequestError):
    """No valid proxy key, or a header that must not be repeated is."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class HostNotAllowed(RequestError):
    """The `Host` header holds a name that could be anybody's: a page may stand behind it (rule 36)."""

    status = 403
    code = "host_not_allowed"


class OriginNotAllowed(RequestError):
    """A web page of an origin that `server.cors_origins` does not list sends it (rule 36)."""

    status = 403
    code = "origin_not_allowed"


class UnsupportedMediaType(RequestError):
    """A body under `/api` whose content type is not JSON: a form of a web page can send any other."""

    status = 415
    code = "unsupported_media_type"


class RecallDisabled(RequestError):
    """A direct call of a recall tool where `recall.enabled` is off (C03)."""

    status = 403
    code = "durable_context_disabled"


class Conflict(RequestError):
    """The session is busy or has moved on."""

    status = 409
    code = "session_busy"


class NameTaken(RequestError):
    """The caller has a session of that name, or with that id."""

    status = 409
    code = "name_taken"


class NothingToRestore(RequestError):
    """The records hold neither a state nor messages that can be read."""

    status = 422
    code = "nothing_to_restore"


class NotUndoable(RequestError):
    """The compaction was undone before, or another one that stands was made from it."""

    status = 409
    code = "not_undoable"


class NamespaceUnproven(RequestError):
    """The upstream never accepted this credential, and it has stored `access.unproven_messages` (rule 26)."""

    status = 429
    code = "namespace_unproven"


class HeadersTooLarge(RequestError):
    """Names and values of the headers exceed `limits.header_bytes`."""

    status = 431
    code = "headers_too_large"


class OpenToolGroup(RequestError):
    """Appended messages do not complete the tool calls that are open at the head."""

    status = 422
    code = "open_tool_calls"


class OtherWire(RequestError):
    """The session was spoken on another API, which holds what has no form on this one."""

    status = 409
    code = "other_wire"


class PinsTooLarge(RequestError):
    """With one more pin, instructions and pins alone would exceed the known window."""

    code = "pins_too_large"


class ContextLengthExceeded(RequestError):
    """What must stay verbatim exceeds the known window (rule 18). The code and the words are OpenAI's."""

    code = "context_length_exceeded"


class ServerBusy(PalimpsestError):
    """`limits.concurrent_requests` are being answered, or `limits.event_streams` are open."""

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
        # Why, in a word that /readyz says: what is wrong with the database's file or disk, if that is it.
        self.reason = reason


class AnswerNotStored(StoreError):
    """An answer came and could not be recorded (rule 15). It is paid for: trying again would pay twice."""

    status = 503
    code = "answer_not_stored"


class SchemaMismatch(StoreError):
    """The database carries a schema this program does not know."""

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


class InvalidView(PalimpsestError):
    """A view would be refused by a strict upstream where the client's own list would not."""

    code = "invalid_view"


class SummaryRejected(PalimpsestError):
    """A summarizer's output cannot stand for history; the message says why, never quoting it."""

    code = "summary_rejected"


class SettingsError(PalimpsestError):
    """Start is refused; the message says the source, the key and the remedy."""

    code = "invalid_settings"
