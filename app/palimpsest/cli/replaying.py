"""`palimpsest replay`: a recorded conversation under another policy, beside the one in force.

The input is an exported session, a file or fetched from a running proxy. Everything else happens here: no
upstream is asked and nothing is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from palimpsest.cli.exports import ExportOptions, exported
from palimpsest.cli.other_policy import Wanted, check, other_policy
from palimpsest.cli.reading import Json
from palimpsest.cli.running_proxy import Proxy
from palimpsest.cli.terminal import counted, effect_of, figure, lines_of_message, money, table
from palimpsest.core.budget.budget import Window
from palimpsest.core.budget.economy import Prices, prompt_cost
from palimpsest.core.budget.upstream_counts import as_theirs
from palimpsest.core.budget.window import window_from_name
from palimpsest.core.history.message import (
    Conversation,
    Message,
    conversation_of,
    seed_of,
)
from palimpsest.core.history.read import read_answer
from palimpsest.core.policy import Policy
from palimpsest.core.presets import PRESETS
from palimpsest.core.recall.tool_results import chain_digits_of
from palimpsest.core.runtime.recorded_turns import (
    RecordedCompaction,
    RecordedTurn,
    ReplayFacts,
    derived_turns,
    recorded_in,
)
from palimpsest.core.runtime.session_import import (
    ImportedRecord,
    RecordLimits,
    imported_of,
    record_of,
)
from palimpsest.core.wire.json_text import decoded
from palimpsest.core.wire.responses.items import as_chat
from palimpsest.errors import SettingsError
from palimpsest.proxy.policy_replay import ReplayedPolicy, ReplayInput, replayed
from palimpsest.proxy.token_counts import PRIMING_TOKENS
from palimpsest.settings.compacting import CompactionSettings
from palimpsest.tokenizer.counting import Counter, Tokenizer
from palimpsest.tokenizer.text import EncodingName
from palimpsest.upstream.models import prices_from_model_data, window_from_model_data

# Bounds of what is replayed: time grows with the square of the messages, about a minute at this many.
MOST_MESSAGES = 20_000
MOST_BYTES = 256_000_000
_DEPTH = 128
_CHAIN_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Recording:
    """A session that was read. `has_turns`: as recorded, not derived; `has_facts`: known, not assumed."""

    record: ImportedRecord
    compactions: Sequence[RecordedCompaction]
    has_facts: bool
    has_turns: bool
    given: ReplayInput


def document(proxy: Proxy, session: str) -> bytes:
    """The exported session in the file of this name, or of the running proxy. SettingsError, NotFound."""
    path = Path(session)
    try:
        if path.is_file():
            return _bounded(path)
    except OSError as failure:
        raise SettingsError(f"replay: {path} cannot be read ({failure.strerror}).") from failure
    if path.suffix == ".json":
        raise SettingsError(f"replay: there is no file {path}.")
    return asyncio.run(exported(proxy, session, None, ExportOptions()))


def _bounded(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise SettingsError(f"replay: {path} has more than {MOST_BYTES:,} bytes.")
    return path.read_bytes()


def replay(content: bytes, wanted: Wanted, begun: Callable[[int], Callable[[int], None]]) -> dict[str, Any]:
    """Both policies over the session. SettingsError for bad options; RequestError for a bad document.

    `begun` is called with the number of turns to replay, and what it returns after each of them.
    """
    recording = _read(content, wanted.window_tokens)
    given, in_force = recording.given, recording.given.facts.policy
    window = given.facts.window
    other, other_window = other_policy(in_force, window, given.turns[-1][0].model, wanted)
    is_other = other != in_force or other_window != window
    passed = begun(len(given.turns) * (1 + is_other))
    now = replayed(given, in_force, window, passed)
    then = replayed(given, other, other_window, passed) if is_other else None
    return {
        "name": recording.record.name,
        "model": given.turns[-1][0].model,
        "messages": len(given.talk.messages),
        "turns": len(given.turns),
        "is_recorded": recording.has_turns,
        "summaries": "code",
        "changes": _changes(in_force, other),
        "recorded": _recorded(recording),
        "in_force": _outcome(now),
        "other": _outcome(then) if then else None,
        "notes": list(_notes(recording)),
        "view": _view(then or now),
    }


def _read(content: bytes, window_tokens: int | None) -> _Recording:
    record = record_of(content, RecordLimits(_DEPTH, 4 * MOST_MESSAGES), time.time())
    imported = imported_of(record)
    if len(imported.messages) > MOST_MESSAGES:
        raise SettingsError(f"replay: the session has more than {MOST_MESSAGES:,} messages.")
    found = recorded_in(record.events)
    facts, turns = found.facts, found.turns
    if facts is not None:
        check(facts.policy)
    known = facts or _unrecorded(record.model, window_tokens)
    counter = _counter(known, record.model)
    messages = [read_answer(message.raw, counter.count_message) for message in imported.messages]
    talk = _with_ids(conversation_of(messages, seed_of("")), [each.name for each in imported.messages])
    said = [(m.role, each.at) for m, each in zip(messages, imported.messages, strict=True)]
    all_turns = turns or derived_turns(said[len(talk.preamble) :], record.model, PRIMING_TOKENS)
    if not all_turns:
        raise SettingsError("replay: the session has no turn.")
    if any(not 0 < turn.messages <= len(talk.messages) for turn in all_turns):
        raise SettingsError("replay: the document's turns are not those of its messages.")
    paired = list(_with_instructions(all_turns, talk.preamble, counter))
    given = ReplayInput(talk, paired, known, counter.count_text)
    return _Recording(record, found.compactions, facts is not None, bool(turns), given)


def _unrecorded(model: str, window_tokens: int | None) -> ReplayFacts:
    """What is assumed for a document without facts."""
    policy = PRESETS["auto"]
    window = Window(policy.assumed_window_tokens, "default")
    if found := window_from_model_data(model):
        window = Window(found, "model_data")
    elif found := window_from_name(model):
        window = Window(found, "name")
    if window_tokens:
        window = Window(window_tokens, "configured")
    share = CompactionSettings().text_pins_share
    return ReplayFacts(policy, window, prices=prices_from_model_data(model), text_pins_share=share)


def _counter(facts: ReplayFacts, model: str) -> Counter:
    encoding = next((name for name in get_args(EncodingName) if name == facts.encoding), None)
    return Tokenizer().counter_for(facts.counted_as or model, encoding)


def _with_ids(talk: Conversation, names: Sequence[str]) -> Conversation:
    """The conversation with the chains of its archive, which blocks refer to, as far as its ids say them."""
    digits = [chain_digits_of(name) for name in names[len(talk.preamble) :]]
    chains = tuple(bytes.fromhex((each or "").ljust(2 * _CHAIN_BYTES, "0")) for each in digits)
    if None in digits or len(set(chains)) < len(chains):
        return talk
    return Conversation(talk.preamble, talk.messages, chains)


def _with_instructions(
    turns: Sequence[RecordedTurn], first: tuple[Message, ...], counter: Counter
) -> Iterator[tuple[RecordedTurn, tuple[Message, ...]]]:
    now = first
    for turn in turns:
        if turn.instructions is not None:
            now = tuple(read_answer(text.encode(), counter.count_message) for text in turn.instructions)
        yield turn, now


def _changes(one: Policy, other: Policy) -> dict[str, list[Any]]:
    """The settings that differ, each with both values; the style goes with the preset's name."""
    before, after = asdict(one), asdict(other)
    del before["style"]
    return {name: [before[name], after[name]] for name in before if before[name] != after[name]}


def _outcome(found: ReplayedPolicy) -> dict[str, Any]:
    return {
        "preset": found.policy.name,
        "window_tokens": found.window.tokens,
        "compactions": [
            {
                "turn": made.n,
                "kind": made.kind,
                "messages_folded": made.messages_folded,
                "folded": list(made.folded),
                "results_shortened": made.masked,
                "tokens_before": made.tokens_before,
                "tokens_after": made.tokens_after,
                "reason": made.reason,
            }
            for made in found.compactions
        ],
        "tokens_sent": found.tokens_sent,
        "tokens_cached": found.tokens_cached,
        "cost": found.cost,
        "turns_unfit": list(found.unfit),
        "messages_verbatim": found.verbatim,
    }


def _recorded(recording: _Recording) -> dict[str, Any] | None:
    """What happened; None where the document does not say."""
    if not recording.has_turns:
        return None
    turns = [turn for turn, _ in recording.given.turns]
    first: dict[str, int] = {}
    for turn in turns:
        first.setdefault(turn.compaction or "", turn.n)
    made = [
        {"turn": first.get(one.id), **{key: getattr(one, key) for key in _SAME}, "author": one.author}
        for one in recording.compactions
    ]
    facts, counted = recording.given.facts, all(turn.prompt_tokens is not None for turn in turns)
    cost = None
    if facts.prices is not None and counted:
        cost = sum(_cost(turn, facts.prices) for turn in turns)
    return {
        "compactions": made,
        "tokens_sent": sum(_sent(turn, facts.ratio) for turn in turns),
        "tokens_cached": sum(turn.cached_tokens or 0 for turn in turns) if counted else None,
        "cost": cost,
    }


def _sent(turn: RecordedTurn, ratio: float) -> int:
    """Tokens of the prompt, counted as a replay's are; where that is not known, by the upstream."""
    ours = turn.tokens_sent
    return turn.prompt_tokens or 0 if ours is None else as_theirs(ours, ratio)


def _cost(turn: RecordedTurn, prices: Prices) -> float:
    cached, written = turn.cached_tokens or 0, turn.written_tokens or 0
    return prompt_cost(turn.prompt_tokens or 0, cached, written, prices) / 1e6


_SAME = ("kind", "trigger", "messages_folded", "tokens_before", "tokens_after", "reason")


def _notes(recording: _Recording) -> Iterator[str]:
    """What limits the comparison."""
    yield (
        "Summaries are those that code writes, without a model: a model's are of another length and may be "
        "in force a turn later. Costs of prompts are estimates, without answers and calls for summaries."
    )
    if not recording.has_facts:
        yield "The document does not say which policy was in force: it is taken to be auto with its defaults."
    if not recording.has_turns:
        yield "No turns are recorded: each answer counts as one, without tools."
    facts = recording.given.facts
    if facts.ratio != 1.0:
        yield f"The model's tokens for one of ours are taken to be {facts.ratio:.3f}, as they are now."
    made = recording.compactions
    others = {
        "written by a model": sum(one.author == "model" for one in made),
        "made by hand": sum(one.trigger == "manual" for one in made),
        "made after the upstream refused a prompt": sum(one.trigger == "overflow" for one in made),
    }
    if said := ", ".join(f"{count} {what}" for what, count in others.items() if count):
        happened = counted(len(made), "compaction")
        yield f"Of the {happened} that happened, {said}: a replay makes none of these kinds."


def _view(found: ReplayedPolicy) -> list[dict[str, Any]]:
    return [
        {
            "kind": "masked" if part.masked else part.kind,
            "tokens": part.tokens,
            "message": as_chat(decoded(part.raw)),
        }
        for part in found.view.parts
    ]


def lines_of(told: Json) -> Iterator[str]:
    """The comparison for people."""
    sizes = f"{counted(told['turns'], 'turn')}, {counted(told['messages'], 'message')}"
    yield f"{told['name'] or 'Unnamed'}, {told['model']}: {sizes}"
    for name, (before, after) in told["changes"].items():
        yield f"  {name}: {before} -> {after}"
    found = {
        title: told[key]
        for title, key in (("RECORDED", "recorded"), ("IN FORCE", "in_force"), ("OTHER", "other"))
        if told[key]
    }
    rows = [("", *found)]
    for label, cell in _ROWS:
        rows.append((label, *(cell(one) for one in found.values())))
    yield from table(rows, right=range(1, len(rows[0])))
    for title, one in found.items():
        yield f"{title}:"
        yield from map(_line_of, one["compactions"])
        if not one["compactions"]:
            yield "  no compaction"
    for note in told["notes"]:
        yield ""
        yield note


def _line_of(made: Json) -> str:
    return f"  turn {made['turn'] or '?'}: {effect_of(made)}: {made['reason']}"


def lines_of_view(told: Json) -> Iterator[str]:
    """The prompt of the last turn, message by message."""
    for part in told["view"]:
        yield from lines_of_message(part["message"], part["kind"], part["tokens"])


def _fitting(one: Json) -> str:
    return figure(len(one["turns_unfit"])) if "turns_unfit" in one else ""


_ROWS: Sequence[tuple[str, Callable[[Json], str]]] = (
    ("window", lambda one: figure(one["window_tokens"]) if "window_tokens" in one else ""),
    ("compactions", lambda one: figure(len(one["compactions"]))),
    ("tokens sent", lambda one: figure(one["tokens_sent"])),
    ("of them likely cached", lambda one: figure(one["tokens_cached"])),
    ("cost of prompts, estimated", lambda one: money(one["cost"])),
    ("turns that do not fit", _fitting),
    ("messages word for word in the last view", lambda one: str(one.get("messages_verbatim", ""))),
)
