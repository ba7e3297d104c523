"""Groups of messages that belong together, and the faults for which a strict upstream refuses a list.

Checked before a view is sent: it may have no fault that the client's own list does not have (rule 20).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from operator import attrgetter
from typing import Any, Literal, TypeAlias, get_args

from palimpsest.core.history.message import INSTRUCTION_ROLES, RESULT_ROLES, Message
from palimpsest.core.wire.responses.items import as_chat


@dataclass(frozen=True, slots=True)
class Group:
    """Messages `[start:stop]` that are kept or folded together: calls with their results, or one message."""

    start: int
    stop: int


def groups_of(messages: Sequence[Message]) -> tuple[Group, ...]:
    """The messages as consecutive groups, every message in exactly one.

    An assistant message with tool calls forms a group up to the last result that answers it, in whatever
    order they come, with the messages in between. An id that is used again names the newest call still
    unanswered (F02). Calls that were never answered (aborted) extend no group. A result without a call
    belongs to the group before it, so that no group starts with a result unless the list does. The legacy
    `function_call` and its `function` message form a group by the same rule.
    """
    starts: list[int] = []
    open_calls: list[tuple[int, list[str]]] = []
    for index, message in enumerate(messages):
        start = index
        if message.role in RESULT_ROLES and index:
            start = starts[-1]
            for called, ids in reversed(open_calls):
                if message.answers in ids:
                    ids.remove(message.answers)
                    start = min(called, start)
                    break
            while starts and starts[-1] >= start:
                starts.pop()
        starts.append(start)
        if message.calls:
            open_calls.append((start, list(message.calls)))
    stops = [*starts[1:], len(messages)]
    return tuple(Group(start, stop) for start, stop in zip(starts, stops, strict=False))


def group_index(groups: Sequence[Group], index: int) -> int:
    """The index in `groups` of the group that holds message `index`."""
    return bisect_right(groups, index, key=attrgetter("start")) - 1


def is_cut(groups: Sequence[Group], cut: int) -> bool:
    """True when `cut` splits no group and leaves messages on both sides."""
    return 0 < cut < groups[-1].stop and groups[group_index(groups, cut)].start == cut


Fault: TypeAlias = Literal[
    "empty",
    "not_an_object",
    "bad_role",
    "bad_content",
    "empty_assistant",
    "instruction_not_first",
    "orphan_result",
    "unanswered_call",
    "unanswered_call_at_end",
    "not_started_by_user",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)

# Numbers stay text: a 5,000-digit integer must not raise, and their values are not used here.
_DECODER = JSONDecoder(parse_int=str, parse_float=str, strict=False)

_ROLES = INSTRUCTION_ROLES | RESULT_ROLES | {"user", "assistant"}


def faults_of(messages: Sequence[bytes]) -> tuple[Fault, ...]:
    """The faults of a list of raw messages, each once, in the order of `FAULTS`.

    Without faults, every tool call is answered by the messages that follow directly, each once, in any order,
    and no result lacks a call; instructions come first; a user message follows them.
    """
    if not messages:
        return ("empty",)
    objects: list[Mapping[str, Any]] = []
    for raw in messages:
        try:
            fields = as_chat(_DECODER.decode(raw.decode("utf-8", "surrogatepass")))
        except ValueError:
            continue
        if isinstance(fields, dict):
            objects.append(fields if isinstance(fields.get("role"), str) else {**fields, "role": None})
    found = _faults_of_calls(objects)
    if len(objects) < len(messages):
        found.add("not_an_object")
    others = [i for i, fields in enumerate(objects) if fields["role"] not in INSTRUCTION_ROLES]
    if others and len(objects) - others[0] > len(others):
        found.add("instruction_not_first")
    if others and objects[others[0]]["role"] != "user":
        found.add("not_started_by_user")
    for fields in objects:
        found |= _faults_alone(fields)
    return tuple(fault for fault in FAULTS if fault in found)


def added_faults(view: Sequence[bytes], client: Sequence[bytes]) -> tuple[Fault, ...]:
    """Faults of the view that the client's own list does not have; empty when the view may be sent."""
    found = faults_of(view)
    # The client's list is as long as the whole history: it is checked only when the view has a fault.
    own = set(faults_of(client)) if found else set()
    return tuple(fault for fault in found if fault not in own)


def _faults_alone(fields: Mapping[str, Any]) -> set[Fault]:
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES:
        return {"bad_role"}
    if role == "assistant":
        has_more = any(fields.get(key) for key in ("tool_calls", "function_call", "audio", "refusal"))
        return {"empty_assistant"} if content is None and not has_more else set()
    # The legacy function message may carry null.
    is_content = isinstance(content, str | list) or (role == "function" and content is None)
    return set() if is_content else {"bad_content"}


def _faults_of_calls(objects: Sequence[Mapping[str, Any]]) -> set[Fault]:
    found: set[Fault] = set()
    open_calls: list[object] = []
    for fields in objects:
        role = fields.get("role")
        if role in RESULT_ROLES:
            answered = fields.get("tool_call_id") if role == "tool" else ("function", fields.get("name"))
            if answered in open_calls:
                open_calls.remove(answered)
            else:
                found.add("orphan_result")
            continue
        if open_calls:
            found.add("unanswered_call")
        open_calls = []
        if role == "assistant":
            calls, legacy = fields.get("tool_calls"), fields.get("function_call")
            made = calls if isinstance(calls, list) else ()
            open_calls = [call.get("id") for call in made if isinstance(call, dict)]
            open_calls += [("function", legacy.get("name"))] if isinstance(legacy, dict) else []
    if open_calls:
        found.add("unanswered_call_at_end")
    return found
