// openai-node: plain and streamed answers, the stream and runTools helpers, tools.

import OpenAI from "openai";
import { TOOLS, main } from "./talk.mjs";

const plain = (client, asked) => client.chat.completions.create(asked);

const helped = (client, asked) =>
  client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion();

/** The pieces are put together by hand, as most programs do. */
async function streamed(client, asked) {
  const message = { role: "assistant", content: null };
  for await (const part of await client.chat.completions.create({ ...asked, stream: true })) {
    for (const { delta } of part.choices) {
      if (delta.content) message.content = (message.content ?? "") + delta.content;
      for (const piece of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        const call = (message.tool_calls[piece.index] ??= {
          id: piece.id,
          type: "function",
          function: { name: "", arguments: "" },
        });
        call.function.name += piece.function.name ?? "";
        call.function.arguments += piece.function.arguments ?? "";
      }
    }
  }
  return { choices: [{ message }] };
}

const WAYS = [plain, streamed, helped];

async function byHand(talk, client, history, turn, way) {
  const tools = TOOLS.map((tool) => ({ type: "function", function: tool }));
  for (;;) {
    const made = await way(client, { model: talk.model, messages: history, tools });
    const { message } = made.choices[0];
    history.push(message);
    for (const call of message.tool_calls ?? []) {
      const content = talk[call.function.name](JSON.parse(call.function.arguments));
      history.push({ role: "tool", tool_call_id: call.id, content });
    }
    if (!message.tool_calls?.length) return Object.assign(turn, { text: message.content, usage: made.usage ?? null });
  }
}

/** The SDK's own loop carries the calls out. */
async function byRunner(talk, client, history, turn) {
  const tools = TOOLS.map((tool) => ({
    type: "function",
    function: { ...tool, parse: JSON.parse, function: (given) => talk[tool.name](given) },
  }));
  const runner = client.chat.completions.runTools({ model: talk.model, messages: history, tools });
  turn.text = await runner.finalContent();
  turn.usage = await runner.totalUsage();
  history.splice(0, history.length, ...runner.messages);
}

await main(async (talk) => {
  const client = new OpenAI({ baseURL: talk.base_url, apiKey: talk.key });
  const history = [{ role: "system", content: talk.system }];
  for (const [number, content] of talk.says.entries()) {
    const turn = talk.begins();
    history.push({ role: "user", content });
    if (number % 4 === 3) await byRunner(talk, client, history, turn);
    else await byHand(talk, client, history, turn, WAYS[number % 4]);
  }
});
