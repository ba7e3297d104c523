"""Whatever models, tools and people write is read without an error, and what is found is verbatim."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from palimpsest.core.notes.edits import changes_of_patch, edits_in_text
from palimpsest.core.notes.effects import effects_in_text, effects_of
from palimpsest.core.notes.facts import Information, newest_of_frames
from palimpsest.core.notes.note import ranked_words
from palimpsest.core.notes.reader import question_in
from palimpsest.core.notes.results import result_of
from palimpsest.core.notes.rules import rules_in
from palimpsest.core.notes.sentences import sentences_of
from palimpsest.core.notes.shell import effects_of_script
from palimpsest.core.text.message_text import ToolCall

LINES = """\
*** Begin Patch
*** Update File: a
--- a/x
+++ b/x
<<<<<<< SEARCH
=======
>>>>>>> REPLACE
cat <<'E' > a
E
rm -rf 'a
sed -i s/a/b/ c | tee b && $(
```
<edit_file>
</edit_file>
Never push.
Is it 5 or 6?
> a
1. - [x] a
…
Error: no
Exit code: 1
"""
PIECES = st.sampled_from(LINES.splitlines())
TEXTS = st.text(max_size=200) | st.lists(PIECES, max_size=9).map("\n".join) | st.lists(PIECES).map(" ".join)
NAMES = st.sampled_from(ranked_words("bash edit apply_patch str_replace_editor TodoWrite taskcreate get_x"))
KEYS = st.sampled_from(ranked_words("command path content todos edits status error exit_code type text"))
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda value: st.lists(value) | st.dictionaries(KEYS, value),
    max_leaves=9,
)


@given(NAMES, VALUES, TEXTS | VALUES.map(json.dumps))
def test_no_call_and_no_result_is_too_odd(name: str, arguments: Any, result: str) -> None:
    for text in (json.dumps(arguments), str(arguments)):
        effects_of(ToolCall("a", name, text), result)
    seen = result_of(result)
    seen.failed()
    assert max(len(seen.error()), len(seen.summary())) <= 160


@given(TEXTS)
def test_no_text_is_too_odd_and_what_is_found_is_verbatim(text: str) -> None:
    effects_in_text(text)
    edits_in_text(text)
    changes_of_patch(text)
    effects_of_script(text, result_of(text))
    sentences = sentences_of(text)
    assert all(each in text for each in (*sentences, *rules_in(text), question_in(text)))
    assert newest_of_frames(sentences) <= set(range(len(sentences)))
    best = Information(sentences).best(lambda index: len(sentences[index]), 100)
    assert len(best) == len(set(best))
