// The official OpenAI SDK for Node, against a gateway with `gateway.toml` and the mock behind it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { GATEWAY_URL, MOCK_URL, CLIENT_KEY, NODE_PACKAGES } = process.env;
// The packages are below the target directory, where no import of this file would look.
const OpenAI = createRequire(`${NODE_PACKAGES}/`)("openai");

// Retries of the SDK's own would hide what a single request sees; scenarios that are about them ask for them.
const client = new OpenAI({ baseURL: `${GATEWAY_URL}/v1`, apiKey: CLIENT_KEY, maxRetries: 0, timeout: 20_000 });
const HI = [{ role: "user", content: "Hi" }];
const WEATHER = {
  name: "get_weather",
  description: "The weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  strict: true,
};

const scenarios = {};
const mock = (directives) => ({ headers: { "x-mock": directives } });
let marks = 0;
const mark = () => `mark-${process.pid}-${++marks}`;

async function collect(stream) {
  const all = [];
  for await (const item of stream) all.push(item);
  return all;
}

const said = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");
const spoken = (events) => events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join("");

async function fails(kind, call) {
  try {
    await call();
  } catch (error) {
    assert.equal(error.constructor, kind, `expected ${kind.name}, got ${error.constructor.name}: ${error.message}`);
    return error;
  }
  assert.fail(`expected ${kind.name}, got an answer`);
}

async function seen(word) {
  const { requests } = await (await fetch(`${MOCK_URL}/_mock/requests`)).json();
  return requests.filter((one) => one.body.includes(word));
}

async function waitFor(what, done) {
  const limit = Date.now() + 10_000;
  while (!(await done())) {
    assert.ok(Date.now() < limit, `${what}: not within 10 s`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

const isLeft = (word) => waitFor("the upstream is left", async () => {
  const requests = await seen(word);
  return requests.length === 1 && requests[0].end === "left";
});

// Good answers

scenarios.chat = async () => {
  const answer = await client.chat.completions.create({ model: "good", messages: HI }, mock("text=Fine"));
  assert.equal(answer.choices[0].message.content, "Fine");
  assert.ok(answer.usage.total_tokens > 0);
};

scenarios.chatStream = async () => {
  const params = { model: "good", messages: HI, stream: true, stream_options: { include_usage: true } };
  const chunks = await collect(await client.chat.completions.create(params, mock('text="All is well"')));
  assert.equal(said(chunks), "All is well");
  assert.ok(chunks.at(-1).usage.total_tokens > 0);
};

scenarios.chatStreamByteByByteAndCrlf = async () => {
  const stream = await client.chat.completions.create({ model: "wire", messages: HI, stream: true });
  assert.equal(said(await collect(stream)), "Grüße, 世界");
};

scenarios.chatStreamHelper = async () => {
  const runner = client.chat.completions.stream({ model: "good", messages: HI }, mock("text=Helped"));
  assert.equal(await runner.finalContent(), "Helped");
};

scenarios.chatToolCall = async () => {
  const params = { model: "good", messages: HI, tools: [{ type: "function", function: WEATHER }] };
  const [call] = (await client.chat.completions.create(params, mock("tool=get_weather"))).choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.ok("city" in JSON.parse(call.function.arguments));
  const chunks = await collect(await client.chat.completions.create({ ...params, stream: true }, mock("tool=get_weather")));
  const parts = chunks.flatMap((chunk) => chunk.choices[0]?.delta?.tool_calls ?? []);
  assert.equal(parts.map((part) => part.function?.arguments ?? "").join(""), call.function.arguments);
};

scenarios.responses = async () => {
  const answer = await client.responses.create({ model: "good", input: "Hi" }, mock("text=Fine"));
  assert.equal(answer.output_text, "Fine");
  const events = await collect(await client.responses.create({ model: "good", input: "Hi", stream: true }, mock('text="All is well"')));
  assert.equal(spoken(events), "All is well");
  assert.equal(events.at(-1).type, "response.completed");
};

scenarios.embeddings = async () => {
  const answer = await client.embeddings.create({ model: "good", input: ["one", "two"] });
  assert.equal(answer.data.length, 2);
  assert.equal(typeof answer.data[0].embedding[0], "number");
};

scenarios.images = async () => {
  const answer = await client.images.generate({ model: "good", prompt: "A red boat" });
  assert.ok(answer.data[0].b64_json);
  const events = await collect(await client.images.generate({ model: "good", prompt: "A red boat", stream: true, partial_images: 1 }));
  assert.equal(events.at(-1).type, "image_generation.completed");
  const file = await OpenAI.toFile(Buffer.from(answer.data[0].b64_json, "base64"), "boat.png", { type: "image/png" });
  assert.ok((await client.images.edit({ model: "good", image: file, prompt: "Now blue" })).data[0].b64_json);
};

scenarios.models = async () => {
  let names = [];
  await waitFor("the models of the providers", async () => {
    names = (await collect(await client.models.list())).map((model) => model.id);
    return names.includes("u1/mock-small");
  });
  assert.ok(names.includes("good") && names.includes("failover"), names.join());
  assert.equal((await client.models.retrieve("good")).id, "good");
  await fails(OpenAI.NotFoundError, () => client.models.retrieve("no-such-model"));
};

// Failover and what the answer tells of it

scenarios.failoverBeforeContent = async () => {
  const { data, response } = await client.chat.completions.create({ model: "failover", messages: HI }).withResponse();
  assert.equal(data.choices[0].message.content, "served");
  assert.equal(response.headers.get("x-surefoot-source"), "u2/key1");
  assert.equal(response.headers.get("x-surefoot-attempts"), "2");
  const streamed = await client.chat.completions.create({ model: "failover", messages: HI, stream: true }).withResponse();
  assert.equal(streamed.response.headers.get("x-surefoot-source"), "u2/key1");
  assert.equal(said(await collect(streamed.data)), "served");
};

scenarios.failoverInResponses = async () => {
  const events = await collect(await client.responses.create({ model: "failover", input: "Hi", stream: true }));
  assert.equal(spoken(events), "served");
  assert.equal(events.filter((event) => event.type === "response.created").length, 1);
};

scenarios.requestId = async () => {
  const own = { headers: { "x-request-id": "mine-3" } };
  assert.equal((await client.chat.completions.create({ model: "good", messages: HI }, own))._request_id, "mine-3");
  const error = await fails(OpenAI.NotFoundError, () => client.chat.completions.create({ model: "no-such-model", messages: HI }));
  assert.ok(error.requestID);
};

// stream_incomplete

scenarios.chatStreamThatBreaksAfterContent = async () => {
  const chunks = [];
  const error = await fails(OpenAI.APIError, async () => {
    for await (const chunk of await client.chat.completions.create({ model: "breaks", messages: HI, stream: true })) chunks.push(chunk);
  });
  assert.equal(error.code, "stream_incomplete");
  assert.equal(error.type, "provider_error");
  assert.match(error.message, /^stream_incomplete.*u1/);
  assert.equal(said(chunks), "Hello! This ");
};

scenarios.responsesStreamThatBreaksAfterContent = async () => {
  const events = await collect(await client.responses.create({ model: "breaks", input: "Hi", stream: true }));
  const last = events.at(-1);
  assert.deepEqual([last.type, last.code, last.sequence_number], ["error", "stream_incomplete", events.at(-2).sequence_number + 1]);
  assert.equal(spoken(events), "Hello! This ");
};

// Errors, each as the SDK's own exception

const STATUSES = [
  [400, OpenAI.BadRequestError], [403, OpenAI.PermissionDeniedError], [404, OpenAI.NotFoundError], [409, OpenAI.ConflictError],
  [413, OpenAI.APIError], [422, OpenAI.UnprocessableEntityError], [500, OpenAI.InternalServerError],
  [502, OpenAI.InternalServerError], [503, OpenAI.InternalServerError], [504, OpenAI.InternalServerError], [529, OpenAI.InternalServerError],
];

for (const [status, kind] of STATUSES) {
  scenarios[`errorOfTheUpstream[${status}-${kind.name}]`] = async () => {
    const options = mock(`${status},message="told to ${status}"`);
    const calls = [
      () => client.chat.completions.create({ model: "good", messages: HI }, options),
      () => client.chat.completions.create({ model: "good", messages: HI, stream: true }, options),
      () => client.responses.create({ model: "good", input: "Hi", stream: true }, options),
    ];
    for (const call of calls) {
      const error = await fails(kind, call);
      assert.equal(error.status, status);
      assert.equal(error.error.message, `told to ${status}`);
      assert.equal(error.headers.get("x-surefoot-attempts"), "1");
    }
  };
}

scenarios.rateLimit = async () => {
  const error = await fails(OpenAI.RateLimitError, () => client.chat.completions.create({ model: "busy", messages: HI }));
  assert.ok(Number(error.headers.get("retry-after")) >= 1);
};

scenarios.error401OfTheUpstream = async () => {
  await fails(OpenAI.AuthenticationError, () => client.chat.completions.create({ model: "revoked", messages: HI }));
};

scenarios.errorsOfTheGateway = async () => {
  const wrong = new OpenAI({ baseURL: `${GATEWAY_URL}/v1`, apiKey: "wrong", maxRetries: 0 });
  const denied = await fails(OpenAI.AuthenticationError, () => wrong.chat.completions.create({ model: "good", messages: HI }));
  assert.equal(denied.type, "authentication_error");
  const unknown = await fails(OpenAI.NotFoundError, () => client.chat.completions.create({ model: "no-such-model", messages: HI, stream: true }));
  assert.deepEqual([unknown.code, unknown.type], ["model_not_found", "not_found_error"]);
  const other = await fails(OpenAI.BadRequestError, () => client.chat.completions.create({ model: "claude", messages: HI }));
  assert.equal(other.type, "invalid_request_error");
  const large = { model: "good", messages: [{ role: "user", content: "x".repeat(100_000) }] };
  assert.equal((await fails(OpenAI.APIError, () => client.chat.completions.create(large))).status, 413);
};

scenarios.nobodyAnswers = async () => {
  const closed = await fails(OpenAI.InternalServerError, () => client.chat.completions.create({ model: "closes", messages: HI }));
  assert.deepEqual([closed.status, closed.type], [502, "provider_error"]);
  for (const stream of [false, true]) {
    const late = await fails(OpenAI.InternalServerError, () => client.chat.completions.create({ model: "stalls", messages: HI, stream }));
    assert.deepEqual([late.status, late.type], [504, "provider_error"]);
  }
};

// Retries of the SDK

scenarios.theSdkHonoursOurRetryAfter = async () => {
  const begun = Date.now();
  const options = { ...mock("429:retry-after=2; ok,text=later"), maxRetries: 1 };
  const answer = await client.chat.completions.create({ model: "hurried", messages: HI }, options);
  assert.equal(answer.choices[0].message.content, "later");
  const took = Date.now() - begun;
  assert.ok(took > 1900 && took < 10_000, `took ${took} ms`);
};

scenarios.theSdkDoesNotRetryWhatUsedUpItsBudget = async () => {
  const word = mark();
  const params = { model: "budget", messages: [{ role: "user", content: word }] };
  const error = await fails(OpenAI.InternalServerError, () => client.chat.completions.create(params, { maxRetries: 3 }));
  assert.equal(error.headers.get("x-surefoot-stop"), "routing_transfer_limit_reached");
  assert.equal(error.headers.get("x-should-retry"), "false");
  assert.equal((await seen(word)).length, 2);
};

// Leaving

scenarios.breakingOutOfAStreamDropsTheUpstream = async () => {
  const word = mark();
  for await (const _ of await client.chat.completions.create({ model: "slow", messages: [{ role: "user", content: word }], stream: true })) break;
  await isLeft(word);
};

scenarios.anAbortSignalDropsTheUpstream = async () => {
  const word = mark();
  const stop = new AbortController();
  const call = client.chat.completions.create({ model: "stalls", messages: [{ role: "user", content: word }] }, { signal: stop.signal });
  waitFor("the request to arrive", async () => (await seen(word)).length === 1).then(() => stop.abort());
  await fails(OpenAI.APIUserAbortError, () => call);
  await isLeft(word);
};

let failed = 0;
const wanted = process.argv.slice(2);
const chosen = Object.entries(scenarios).filter(([name]) => !wanted.length || wanted.some((part) => name.includes(part)));
for (const [name, run] of chosen) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}\n${error.stack}`);
  }
}
console.log(`${chosen.length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
