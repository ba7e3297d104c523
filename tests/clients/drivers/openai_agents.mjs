// openai-agents for JavaScript, in chat mode: its runner carries the calls out; nothing is traced.

import { Agent, OpenAIProvider, Runner, tool, user } from "@openai/agents";
import { TOOLS, main } from "./talk.mjs";

await main(async (talk) => {
  const modelProvider = new OpenAIProvider({ baseURL: talk.base_url, apiKey: talk.key, useResponses: false });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const tools = TOOLS.map((given) => tool({ ...given, strict: true, execute: (asked) => talk[given.name](asked) }));
  const agent = new Agent({ name: "keeper", instructions: talk.system, model: talk.model, tools });
  let history = [];
  for (const [number, text] of talk.says.entries()) {
    const turn = talk.begins();
    const asked = [...history, user(text)];
    const made = number % 2 ? await runner.run(agent, asked, { stream: true }) : await runner.run(agent, asked);
    if (number % 2) await made.completed;
    turn.text = made.finalOutput;
    turn.usage = made.rawResponses.map(({ usage }) => [usage.inputTokens, usage.outputTokens]);
    history = made.history;
  }
});
