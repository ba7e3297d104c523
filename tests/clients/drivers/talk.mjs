// What the drivers written for node share; the same protocol as talk.py. Knows nothing of proxies.

/** One conversation to be held, with the two tools; `turns` fills as it goes on. */
class Talk {
  constructor(given) {
    Object.assign(this, given);
    this.turns = [];
  }

  begins() {
    this.turn = { text: null, calls: [], usage: null };
    this.turns.push(this.turn);
    return this.turn;
  }

  lookup({ name }) {
    this.turn.calls.push(["lookup", { name }]);
    return this.records[name];
  }

  measure({ metres }) {
    this.turn.calls.push(["measure", { metres }]);
    return `It is ${Number(metres).toFixed(2)} metres long.`;
  }
}

/** Every conversation is held, all at once; a failure is told in place of its turns. */
export async function main(hold) {
  let input = "";
  for await (const piece of process.stdin) input += piece;
  const talks = JSON.parse(input).talks.map((given) => new Talk(given));
  const told = await Promise.all(
    talks.map(async (talk) => {
      try {
        await hold(talk);
        // Some clients carry out at the same time what the model asked for at once.
        for (const { calls } of talk.turns) calls.sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
        return [talk.name, { turns: talk.turns }];
      } catch (error) {
        return [talk.name, { error: error.stack }];
      }
    }),
  );
  process.stdout.write("\n" + JSON.stringify(Object.fromEntries(told)) + "\n");
}

const ofOne = (name, type) => ({
  type: "object",
  properties: { [name]: { type } },
  required: [name],
  additionalProperties: false,
});

/** The two tools: name, description and JSON Schema. */
export const TOOLS = [
  { name: "lookup", description: "Find a record by its name.", parameters: ofOne("name", "string") },
  { name: "measure", description: "Say a length in words.", parameters: ofOne("metres", "number") },
];
