// The Vercel AI SDK with @ai-sdk/openai as it comes: the Responses API, items of answers named by their ids.

import { createOpenAI } from "@ai-sdk/openai";
import { main } from "./talk.mjs";
import { hold } from "./vercel_talk.mjs";

await main(async (talk) => {
  const upstream = createOpenAI({ baseURL: talk.base_url, apiKey: talk.key });
  await hold(talk, upstream(talk.model));
});
