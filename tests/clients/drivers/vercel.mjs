// The Vercel AI SDK with @ai-sdk/openai-compatible, which speaks chat completions.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { main } from "./talk.mjs";
import { hold } from "./vercel_talk.mjs";

await main(async (talk) => {
  const upstream = createOpenAICompatible({
    name: "palimpsest",
    baseURL: talk.base_url,
    apiKey: talk.key,
    includeUsage: true,
  });
  await hold(talk, upstream(talk.model));
});
