"""A reader who sees nothing but the view answers what the conversation told, early, in the middle and late.

Questions and answers are fixed before any view is made. An answer counts where one line of the last prompt
has all of it. The control is a reader of the newest messages alone, as many tokens of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.kit.chat import Chat
from tests.kit.model import ModelServer, Says, tokens_of
from tests.kit.proxy import proxied
from tests.kit.words import prose

Json = dict[str, Any]
WINDOW = 6_000
pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Step:
    """What a user says, the calls it leads to with their results, and the answer."""

    asks: str
    answer: str
    calls: tuple[tuple[str, Json, str], ...] = ()


@dataclass(frozen=True)
class Talk:
    """A conversation: `told` at even distances in idle exchanges, and questions with their answers."""

    opening: str
    told: tuple[Step, ...]
    idle: Callable[[int], Step]
    questions: dict[str, tuple[str, ...]]
    tools: tuple[str, ...] = ()
    between: int = 8
    steps: list[Step] = field(default_factory=list)

    def __iter__(self) -> Iterator[Step]:
        yield Step(self.opening, "Understood.")
        for place, step in enumerate(self.told):
            yield step
            yield from (self.idle(place * self.between + n) for n in range(self.between))


def looks(number: int) -> Step:
    """An exchange of a coding agent that changes nothing."""
    path = f"src/part_{number}.py"
    listing = "\n".join(f"{line}: {prose(number * 50 + line, 9)}" for line in range(1, 30))
    return Step("Go on.", "That part is as it should be.", (("read_file", {"path": path}, listing),))


def chats(number: int) -> Step:
    """Small talk, and what one says to it."""
    places = ("the lake", "the old mill", "the market", "the harbour", "the woods")
    asks = f"We walked to {places[number % 5]} again. {prose(number, 60)}"
    return Step(asks, f"That sounds like a good walk. {prose(1_000 + number, 200)}")


CODING = Talk(
    opening="Please bring the billing service to the new tax rules, step by step.",
    told=(
        Step("Never touch the migrations folder without asking me.", "Understood."),
        Step(
            "Round half up, please; the ticket is BIL-4821.",
            "The rounding is done in cents now, because floats drift.",
            (
                (
                    "edit_file",
                    {"path": "billing/rounding.py", "old_string": "round(x, 2)", "new_string": "half_up(x)"},
                    "The file billing/rounding.py has been updated.",
                ),
            ),
        ),
        Step(
            "Run the tests.",
            "One test fails.",
            (
                (
                    "bash",
                    {"command": "pytest tests/billing -q"},
                    "FAILED tests/billing/test_vat.py - KeyError: 'reduced'\n1 failed, 48 passed",
                ),
            ),
        ),
        Step(
            "We use the rate table in rates_2031.toml instead of rates.json.",
            "The loader reads the new table.",
            (
                ("write_file", {"path": "billing/loader.py", "content": "import tomllib\n"}, "File created."),
                ("bash", {"command": "git rm -q billing/rates.json"}, ""),
            ),
        ),
        Step(
            "Run them again, then tag it.",
            "All pass, and it is tagged.",
            (
                ("bash", {"command": "pytest tests/billing -q"}, "49 passed in 2.11s"),
                ("bash", {"command": "git tag v3.4.0"}, ""),
            ),
        ),
        Step("Good.", "Before it is pushed: shall the old endpoint /v1/vat answer with 410 or 301?"),
        Step("I will think about that. Look at the reports meanwhile.", "I am looking at them."),
    ),
    idle=looks,
    tools=("read_file", "edit_file", "write_file", "bash"),
    between=6,
    questions={
        "What may nobody touch without asking?": ("Never touch the migrations folder without asking me.",),
        "Which ticket is the rounding about, and how is it rounded?": ("half up", "BIL-4821"),
        "What was changed for the rounding?": ("edited", "billing/rounding.py"),
        "Which file holds the rates now?": ("rates_2031.toml",),
        "What became of the old table?": ("deleted", "billing/rates.json"),
        "What became of the loader?": ("created", "billing/loader.py"),
        "Do the tests pass?": ("pytest tests/billing -q", "ok", "49 passed"),
        "Was it tagged?": ("git tag", "v3.4.0", "ok"),
    },
)

DESK = Talk(
    opening="You will get the cases of today one after another.",
    told=(
        Step(
            "Hello, I am Ines Vidal, customer C-20418. I want to cancel order W-7731.",
            "It is cancelled.",
            (
                (
                    "cancel_order",
                    {"order_id": "W-7731", "reason": "no longer needed"},
                    '{"order_id": "W-7731", "status": "cancelled", "refund": 84.5}',
                ),
            ),
        ),
        Step("Refunds of more than 100 euros must be approved by Mr. Aalto.", "I will ask him then."),
        Step(
            "Please send the lamp of order W-8802 to Rua do Sol 14 instead of the old address.",
            "It is changed.",
            (
                (
                    "update_address",
                    {"order_id": "W-8802", "address": "Rua do Sol 14"},
                    '{"order_id": "W-8802", "status": "updated"}',
                ),
            ),
        ),
        Step(
            "Can you refund order W-9150? It was 240 euros.",
            "That needs an approval; I have asked Mr. Aalto.",
            (
                (
                    "refund_order",
                    {"order_id": "W-9150", "amount": 240},
                    "Error: W-9150 needs an approval first",
                ),
            ),
        ),
        Step(
            "Book a technician for Tuesday at 9, please.",
            "He comes on Tuesday at 9.",
            (
                (
                    "book_visit",
                    {"customer_id": "C-20418", "slot": "Tuesday 09:00"},
                    '{"visit_id": "V-553", "status": "booked"}',
                ),
            ),
        ),
        Step(
            "No, better on Thursday at 14.",
            "He comes on Thursday at 14 now.",
            (
                (
                    "book_visit",
                    {"customer_id": "C-20418", "slot": "Thursday 14:00"},
                    '{"visit_id": "V-561", "status": "booked"}',
                ),
            ),
        ),
    ),
    idle=chats,
    tools=("cancel_order", "update_address", "refund_order", "book_visit"),
    questions={
        "Who is the customer?": ("Ines Vidal", "C-20418"),
        "What became of W-7731?": ("cancel_order", "W-7731", "84.5"),
        "When must Mr. Aalto approve?": ("Refunds of more than 100 euros must be approved by Mr. Aalto.",),
        "Where does the lamp go?": ("W-8802", "Rua do Sol 14"),
        "What stands in the way of the refund?": ("refund_order", "W-9150", "needs an approval first"),
        "Which visits were booked?": ("book_visit", "Tuesday 09:00", "V-553"),
        "And the later one?": ("book_visit", "Thursday 14:00", "V-561"),
    },
)

CHAT = Talk(
    opening="I would like to plan my mother's birthday with you, bit by bit.",
    told=(
        Step(
            "She turns seventy on the 4th of May, and there will be 23 guests.",
            "Then a large room is needed.",
        ),
        Step("Nothing with peanuts, please: Henrik is allergic.", "I will keep that in mind."),
        Step("The hall of the rowing club costs 380 euros for the evening.", "That is a fair price."),
        Step(
            "What do 23 guests at 41 euros each come to?",
            "Let us count. The guests come to 943 euros in all.",
        ),
        Step("My brother Teodor brings the piano, he lives in Gdynia.", "That is a long way with a piano."),
        Step(
            "We take the boat MS Lindau instead of the rowing club.", "The boat it is, since it has a ramp."
        ),
    ),
    idle=chats,
    questions={
        "When is it, and how many come?": ("4th of May", "23 guests"),
        "What must not be in the food?": ("peanuts", "Henrik"),
        "What do the guests cost together?": ("943 euros",),
        "Who brings the piano, and from where?": ("Teodor", "Gdynia"),
        "Where does it take place?": ("MS Lindau", "instead of the rowing club"),
    },
)


def forgets(_: object) -> Says:
    """The record of a summarizer that has noticed nothing."""
    text = (
        "## 1. Primary request and intent\nThe user asked for help.\n## 8. Current state\nThe work goes on."
    )
    return Says({"role": "assistant", "content": text})


def fails(_: object) -> Says:
    return Says(status=503, error={"error": {"message": "no summarizer today"}})


async def plays(chat: Chat, model: ModelServer, talk: Talk) -> None:
    for number, step in enumerate(talk):
        asked: list[Json] = [{"role": "user", "content": step.asks}]
        for at, (name, arguments, result) in enumerate(step.calls):
            model.calls((f"call_{number}_{at}", name, arguments))
            await chat.sends(*asked)
            asked = [{"role": "tool", "tool_call_id": f"call_{number}_{at}", "content": result}]
        model.says(step.answer)
        await chat.sends(*asked)


def lines_of(messages: list[Json]) -> list[str]:
    """What a reader sees, line by line; a call that is shown and its result are one line."""
    lines: list[str] = []
    calls: dict[str, str] = {}
    for message in messages:
        called = calls.get(message.get("tool_call_id", ""), "")
        lines += [f"{called} {line}" for line in str(message.get("content") or "").split("\n")]
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = f"{call['function']['name']} {call['function']['arguments']}"
    return [*lines, *calls.values()]


def unanswered(talk: Talk, messages: list[Json]) -> list[str]:
    lines = lines_of(messages)
    return [
        question
        for question, answer in talk.questions.items()
        if not any(all(part in line for part in answer) for line in lines)
    ]


def newest_only(messages: list[Json], tokens: int) -> list[Json]:
    """As many of the newest messages as the view has tokens."""
    kept: list[Json] = []
    while messages and tokens_of([messages[-1], *kept]) <= tokens:
        kept.insert(0, messages[-1])
        messages = messages[:-1]
    return kept


@pytest.mark.parametrize("summary", [fails, forgets])
@pytest.mark.parametrize("talk", [CODING, DESK, CHAT], ids=["coding", "desk", "chat"])
async def test_the_view_alone_answers_every_question(
    talk: Talk, summary: Callable[[object], Says], tmp_path: Path
) -> None:
    model = ModelServer(window=WINDOW)
    model.summary = summary
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in talk.tools
    ]
    extra: Json = {"tools": tools} if tools else {}
    async with proxied(model, tmp_path) as proxy:
        chat = proxy.chat(system="You help.", extra=extra)
        await plays(chat, model, talk)
        await chat.says("What comes next?")
        assert len(await chat.compactions()) >= 2
        last = model.prompts[-1]
        # What was told in the first half is not shown as it was said.
        early = [step.asks for step in talk.told[: len(talk.told) // 2]]
        shown = {message.get("content") for message in last.messages}
        assert shown.isdisjoint(early)
        assert unanswered(talk, last.messages) == []
        # The control: a reader of the newest messages alone misses most of it.
        truncated = newest_only(chat.sent[-1], last.tokens)
        assert len(unanswered(talk, truncated)) > len(talk.questions) / 2, json.dumps(truncated)[:400]
