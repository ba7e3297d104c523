"""How clients and the scripted upstream talk: turns, and what must be true of the store afterwards.

Knows the store only through the exchange.
"""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.history.read import read_message

from tests.simulation.exchange import Answers, Opened, Proxy, Request, encoded
from tests.simulation.habits import Client, Json, assistant, calling, result, user


def wire(messages: Sequence[Json]) -> list[bytes]:
    return [encoded(message) for message in messages]


def digests(messages: Sequence[Json]) -> list[bytes]:
    """Canonical digests of what stands outside the preamble."""
    read = [read_message(encoded(message), len) for message in messages]
    return [message.canonical for message in read if not message.is_instruction]


async def ask(proxy: Proxy, client: Client, *said: Json, answer: Json, name: str | None = None) -> Opened:
    """One exchange that the client hears the end of."""
    request = client.says(*said)
    opened = await proxy.play(Request(wire(request), session=name), Answers(wire([answer])))
    assert await proxy.canonicals(opened) == digests(request)
    client.hears(answer)
    return opened


async def chat(proxy: Proxy, client: Client, n: int, who: str = "") -> Opened:
    """A turn of talk. The answer has outer whitespace and a thought in front."""
    answer = assistant(f"<think>hm {n}</think>\n\n{who}Answer {n}, at length.\n")
    answer["reasoning_content"] = f"thinking of {n}"
    answer["refusal"] = None
    return await ask(proxy, client, user(f"{who}Question {n}?"), answer=answer)


async def work(proxy: Proxy, client: Client, n: int) -> Opened:
    """A turn of two parallel tool calls; call ids and numbers are written in the model's own way."""
    first, second = f"call_{n}_a", f"call_{n}_b"
    calls = calling((first, "measure", f'{{"at": 1e2, "deep": {{"n": {n}}}}}'), (second, "list", ""))
    await ask(proxy, client, user(f"Task {n}."), answer=calls)
    results = (result(first, f"reading {n}"), result(second, "a.py\nb.py"))
    return await ask(proxy, client, *results, answer=assistant(f"Done with {n}. "))


async def turns(proxy: Proxy, client: Client, count: int, who: str = "") -> Opened:
    """Talk, with tools every fifth turn."""
    opened = None
    for n in range(count):
        opened = await (work(proxy, client, n) if n % 5 == 4 else chat(proxy, client, n, who))
    assert opened is not None
    return opened


async def only_session(proxy: Proxy) -> str:
    sessions = await proxy.sessions()
    assert len(sessions) == 1
    return sessions[0].id
