"""What goes into which slot while a conversation happens."""

from __future__ import annotations

import pytest
from palimpsest.core.history.message import Message
from palimpsest.core.summary.working import FileAction

from tests.core.summary.talk import calls, result, says, user
from tests.core.summary.working.session import session, state_of


def test_what_deletes_no_file_is_a_tool_like_any_other() -> None:
    state = state_of([calls("delete", order="ORD-9"), result("order removed")])
    assert state.files == []
    assert [(note.label, note.text) for note in state.tool_results] == [
        ("delete order=ORD-9", "order removed")
    ]


@pytest.mark.spec("D05")
@pytest.mark.spec("D16")
def test_the_thirty_first_result_evicts_the_first() -> None:
    each = [
        part
        for n in range(31)
        for part in (calls("Bash", f"c{n}", command=f"echo {n}"), result(str(n), f"c{n}"))
    ]
    state = state_of(each)
    assert [note.text for note in state.tool_results] == [str(n) for n in range(1, 31)]
    assert [note.text for note in state_of(each[:40]).tool_results] == [str(n) for n in range(20)]
    few = state_of(each, max_tool_results=2)
    assert [note.label for note in few.tool_results] == ["echo 29", "echo 30"]


@pytest.mark.spec("D05")
def test_a_shells_output_stands_with_its_command() -> None:
    long = "first-line-81\n" + "middle of it\n" * 400 + "last-line-82"
    (fine,) = state_of([calls("Bash", command="make all"), result(long)]).tool_results
    assert fine.label == "make all"
    assert len(fine.text) <= 800
    assert "first-line-81" in fine.text
    assert fine.text.endswith("last-line-82")
    (failed,) = state_of([calls("Bash", command="make all"), result("error: x\n" + long)]).tool_results
    assert failed.failed
    assert 1_300 < len(failed.text) <= 1_500


@pytest.mark.spec("D05")
def test_a_search_is_counted() -> None:
    lines = [f"src/m{n}.py:{n}: retry" for n in range(25)]
    (note,) = state_of([calls("Grep", pattern="retry"), result("\n".join(lines))]).tool_results
    assert note.text.splitlines() == ["25 matches", *lines[:10]]
    (wide,) = state_of([calls("Grep", pattern="x"), result("\n".join(["word " * 60] * 9))]).tool_results
    assert wide.text.startswith("9 matches\n")
    assert len(wide.text) <= 600


@pytest.mark.spec("D05")
@pytest.mark.parametrize(
    ("text", "count"), [("No matches found", 0), ("", 0), ("Found 3 files\na\nb\nc", 3), ("a.py:1:x", 1)]
)
def test_a_search_that_counts_itself_is_believed(text: str, count: int) -> None:
    (note,) = state_of([calls("Grep", pattern="x"), result(text)]).tool_results
    assert note.text.splitlines()[0] == f"{count} match{'' if count == 1 else 'es'}"


@pytest.mark.spec("D05")
def test_results_find_their_calls_in_any_order_and_across_states() -> None:
    said = [calls("Bash", "a", command="one"), calls("Bash", "b", command="two")]
    said += [result("2", "b"), result("1", "a"), result("?", "zzz")]
    state = state_of(said)
    assert [(n.label, n.text) for n in state.tool_results] == [("two", "2"), ("one", "1"), ("tool", "?")]


def test_an_id_that_comes_again_means_the_newer_call() -> None:
    said = [calls("Read", "a", path="p.py"), result("one", "a"), calls("Bash", "a", command="ls")]
    state = state_of([*said, result("Error: gone", "a")])
    assert state.files[0].actions == (FileAction("read", detail="1 line"),)
    assert [note.label for note in state.tool_results] == ["ls"]


@pytest.mark.spec("D06")
def test_the_first_request_is_the_task_and_later_ones_are_requirements() -> None:
    state = state_of(
        [user("Build it for QUE-1. " * 40), user("yes"), user("Keep\nport 8081."), user("w " * 400)]
    )
    assert state.task.startswith("Build it for QUE-1. ")
    assert len(state.task) <= 400
    assert state.user_requirements[0] == "Keep port 8081."
    assert [len(each) <= 300 for each in state.user_requirements] == [True, True]


@pytest.mark.spec("D06")
def test_a_request_said_again_stands_once_where_it_was_said_last() -> None:
    state = state_of([user("task"), user("Run it."), user("Stop it."), user("Run it.")])
    assert state.user_requirements == ["Stop it.", "Run it."]


@pytest.mark.spec("D06")
def test_what_a_client_adds_is_no_request() -> None:
    block = "<environment_context>\n<cwd>/srv/shop</cwd>\n<shell>zsh</shell>\n</environment_context>"
    state = state_of([user(block), user("<system-reminder>be good</system-reminder>\nFix QUE-7")])
    assert state.task == "Fix QUE-7"


def test_a_block_that_never_ends_is_what_the_user_wrote() -> None:
    assert (
        state_of([user("What does <env> mean in <env> here?")]).task == "What does <env> mean in <env> here?"
    )


@pytest.mark.spec("D07")
@pytest.mark.parametrize(
    "sentence",
    [
        "I'll use PostgreSQL 16 for the ledger.",
        "We decided to keep the old endpoint /v1/pay.",
        "The retries stay at 3 because QUE-4471 asks for it.",
        "Let's split the parser from the lexer.",
        "I'm going to store the offsets in Redis.",
        "Choosing msgspec over pydantic for the hot path.",
        "Switching to asyncpg for the pool.",
    ],
)
def test_decisions_are_known_by_their_wording(sentence: str) -> None:
    assert state_of([says(f"Hello there. {sentence} Bye.")]).decisions == [sentence]


@pytest.mark.spec("D07")
@pytest.mark.parametrize(
    "text",
    [
        "Let's see.",
        "Let's look at the tests first.",
        "I'm going to check the logs of the worker.",
        "Should I use Kafka because it scales?",
        "I'll use it.",
        "```\n# decided to keep this comment here\n```",
    ],
)
def test_what_decides_nothing_is_no_decision(text: str) -> None:
    assert state_of([says(text)]).decisions == []


@pytest.mark.spec("D07")
def test_decisions_are_short_distinct_and_few() -> None:
    long = (
        "After reading all of the many files that there are here, I decided to move /srv/data/x9 "
        + "on " * 60
    )
    state = state_of([says(long)])
    assert state.decisions[0].startswith("decided to move /srv/data/x9")
    assert len(state.decisions[0]) <= 120
    many = state_of([says(f"I'll use port {n} for worker {n}.") for n in [*range(30), 29, 28]])
    assert len(many.decisions) == 25
    assert many.decisions[-2:] == ["I'll use port 29 for worker 29.", "I'll use port 28 for worker 28."]


@pytest.mark.spec("D08")
@pytest.mark.parametrize(
    "sentence",
    [
        "I found that worker3.py never closes its socket.",
        "The issue was a stale lock in /var/run/q.lock.",
        "It turns out the index was built twice.",
        "The root cause is a race in Pool.get().",
    ],
)
def test_discoveries_are_known_by_their_wording(sentence: str) -> None:
    assert state_of([says(f"Right. {sentence} Bye.")]).discoveries == [sentence]


@pytest.mark.spec("D08")
def test_discoveries_are_short_distinct_and_few() -> None:
    (found,) = state_of([says("I found that " + "the pool leaks and " * 20)]).discoveries
    assert len(found) <= 150
    many = state_of([says(f"I found that worker {n} is idle.") for n in [*range(30), 29]])
    assert len(many.discoveries) == 25
    assert many.discoveries[-1] == "I found that worker 29 is idle."


@pytest.mark.spec("D09")
def test_the_plan_has_ids_labels_and_statuses() -> None:
    assert state_of(session()[:3]).plan == [
        {"id": "1", "label": "Read services/queue.py", "status": "done"},
        {"id": "2", "label": "Make the number of retries a setting", "status": "active"},
        {"id": "3", "label": "Document QUEUE_RETRIES", "status": "pending"},
    ]


@pytest.mark.spec("D09")
def test_a_plan_without_ids_is_numbered_and_a_new_one_replaces_it() -> None:
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "pending"}]
    begun = [*session()[:3], calls("update_plan", plan=steps), result("ok")]
    assert state_of(begun).plan == [
        {"id": "1", "label": "a", "status": "done"},
        {"id": "2", "label": "b", "status": "pending"},
    ]
    assert state_of([*begun, calls("TodoWrite", todos=[]), result("ok")]).plan == []


@pytest.mark.spec("D09")
@pytest.mark.parametrize(
    ("sentence", "facts"),
    [
        ("We are on Python 3.11 and Redis 7.", {"Python": "3.11", "Redis": "7"}),
        ("Everything runs on Kubernetes.", {"Kubernetes": ""}),
        ("We are not on Python 2.7.", {}),
        ("Is it Python 3.12?", {}),
        ("Go 3 steps back.", {}),
        ("Open src/python 3 times.", {}),
    ],
)
def test_versions_and_tools_are_those_that_a_user_names(sentence: str, facts: dict[str, str]) -> None:
    assert environment(user(f"Write the ledger. {sentence}")) == facts
    assert environment(says(f"Good. {sentence}")) == {}


def environment(*messages: Message) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in state_of(messages).environment}


@pytest.mark.spec("D09")
def test_versions_are_those_that_a_command_states() -> None:
    asked = calls("Bash", "a", command="node --version"), result("v20.11.1\n", "a")
    failed = calls("Bash", "d", command="python --version"), result("bash: python: not found", "d")
    assert environment(*asked, *failed) == {"node": "20.11.1"}


@pytest.mark.spec("D09")
def test_of_a_version_said_twice_the_newer_holds() -> None:
    said = user("We are on Python 3.9 for now."), user("We moved: it is Python 3.12 now.")
    assert environment(*said) == {"Python": "3.12"}


@pytest.mark.spec("D09")
def test_notes_hold_five_sentences_of_substance() -> None:
    filler = "Great! Sure, happy to help. Let me check the tests. Ok."
    said = " ".join(f"Module mod_{n} now exports {n} handlers." for n in range(9))
    (note,) = state_of([says(f"{filler} {said}")]).assistant_notes
    assert note == " ".join(f"Module mod_{n} now exports {n} handlers." for n in range(4, 9))
    assert state_of([says(filler)]).assistant_notes == []
    # Longer than a sentence that says one thing: no note copies it.
    assert state_of([says("Words " * 300)]).assistant_notes == []


def test_secrets_and_data_never_get_into_the_state() -> None:
    key = "sk-" + "Ab1" * 10
    state = state_of(
        [
            user(f"Use the key {key} for QUE-1"),
            calls("Bash", command=f"curl -H 'Authorization: Bearer {key}' https://api.test/v1"),
            result(f"api_key={key}\n" + "QUJDZGVm9a" * 80),
            calls("login", "l1", password="hunter2hunter2", user="ana"),
            calls("Write", "w1", path="a.env", content=f"KEY={key}"),
            result("ok", "w1"),
            calls("Edit", "e1", path="a.env", old_string=f"KEY={key}", new_string="KEY=x"),
            result("ok", "e1"),
        ]
    )
    assert key not in repr(state)
    assert "hunter2" not in repr(state)
    assert "QUJDZGVm9aQUJD" not in repr(state)
    assert "https://api.test/v1" in state.tool_results[0].label


def test_identifiers_come_out_whole_or_not_at_all() -> None:
    paths = [f"/srv/data/part-{n:04}/file_{n:04}.parquet" for n in range(60)]
    state = state_of([user(" ".join(paths)), calls("Bash", command="ls"), result("\n".join(paths))])
    words = [*state.task.split(), *state.tool_results[0].text.split()]
    assert [w for w in words if "/srv" in w and w not in paths] == []
