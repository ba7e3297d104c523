// The Vercel AI SDK with @ai-sdk/openai-compatible: generateText and streamText, which carry the calls out.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { TOOLS, main } from "./talk.mjs";

await main(async (talk) => {
  const upstream = createOpenAICompatible({
    name: "palimpsest",
    baseURL: talk.base_url,
    apiKey: talk.key,
    includeUsage: true,
  });
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
    const asked = {
      model: upstream(talk.model),
      system: talk.system,
      messages: history,
      tools,
      stopWhen: stepCountIs(8),
    };
    const made = number % 2 ? streamText(asked) : await generateText(asked);
    turn.text = await made.text;
    const { inputTokens, outputTokens } = await made.totalUsage;
    turn.usage = { inputTokens, outputTokens };
    history.push(...(await made.responseMessages));
  }
});
