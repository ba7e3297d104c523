"""What an assistant waits for, which answers need their question, and what closing words say."""

from __future__ import annotations

import pytest
from palimpsest.core.notes.reader import is_short_answer, question_in


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("All tests pass.\n\nShould I push it?", "Should I push it?"),
        ("Which one do you want?\n\n1. The blue one\n2. The red one", "Which one do you want?"),
        ("I can do that. Do you want to proceed (yes/no)? I will wait.", "Do you want to proceed (yes/no)?"),
        ("I found two. Is it A? Or is it B?", "Or is it B?"),
        ("I can cancel it. Please provide your order number.", "Please provide your order number."),
        ("Soll ich das löschen?", "Soll ich das löschen?"),
        ("您想继续吗？", "您想继续吗？"),
        ("All set! Is there anything else I can help with?", ""),
        ("Let me know if you need anything else.", ""),
        ("Why did it fail? The port was taken.\n\nI fixed it.", ""),
        ("Done.\n\n```\nreally?\n```", ""),
        ("", ""),
    ],
)
def test_the_question_that_is_waited_for(text: str, asked: str) -> None:
    assert question_in(text) == asked


@pytest.mark.parametrize(
    "text",
    [
        "yes, please",
        "No",
        "the second one",
        "It's downtown",
        "ok go ahead",
        "4411",
        "Boston",
        "ja bitte",
        "Oui, merci.",
        "el segundo",
        "pode ser",
        "好的",
        "第二个",
        "はい、お願いします",
    ],
)
def test_short_answers_need_their_question(text: str) -> None:
    assert is_short_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Thanks!",
        "What?",
        "Cancel my flight",
        "I want to book another flight to Rome",
        "Yes, and then please move the whole thing to the new server.",
        "取消我的航班",
        "Fix the test",
    ],
)
def test_other_messages_stand_by_themselves(text: str) -> None:
    assert not is_short_answer(text)
