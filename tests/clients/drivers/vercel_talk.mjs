// What the drivers with the Vercel AI SDK share: generateText and streamText, which carry the calls out.

import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { TOOLS } from "./talk.mjs";

/** The conversation is held with this model. */
export async function hold(talk, model) {
  const tools = Object.fromEntries(
    TOOLS.map(({ name, description, parameters }) => [
      name,
      tool({ description, inputSchema: jsonSchema(parameters), execute: async (given) => talk[name](given) }),
    ]),
  );
  const history = [];
  for (const [number, content] of talk.says.entries()) {
    const turn = talk.begins();
    history.push({ role: "user", content });
    const asked = { model, system: talk.system, messages: history, tools, stopWhen: stepCountIs(8) };
    const made = number % 2 ? streamText(asked) : await generateText(asked);
    turn.text = await made.text;
    const { inputTokens, outputTokens } = await made.totalUsage;
    turn.usage = { inputTokens, outputTokens };
    history.push(...(await made.responseMessages));
  }
}
