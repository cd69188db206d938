"""The official OpenAI SDK for Python, against a gateway with `gateway.toml` and the mock behind it."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from scenarios import GATEWAY, KEY, each, main, mark, mock, raises, scenario, seen, wait_for

# Retries of the SDK's own would hide what a single request sees; scenarios that are about them ask for them.
client = OpenAI(base_url=f"{GATEWAY}/v1", api_key=KEY, max_retries=0, timeout=20)
HI: list[Any] = [{"role": "user", "content": "Hi"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    "strict": True,
}
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")


def said(stream: Any) -> str:
    """The text of a chat stream."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


# Good answers


@scenario
def chat() -> None:
    answer = client.chat.completions.create(model="good", messages=HI, extra_headers=mock("text=Fine"))
    assert answer.choices[0].message.content == "Fine" and answer.choices[0].finish_reason == "stop"
    assert answer.usage and answer.usage.total_tokens > 0


@scenario
def chat_stream() -> None:
    with client.chat.completions.create(
        model="good", messages=HI, stream=True, stream_options={"include_usage": True}, extra_headers=mock('text="All is well"')
    ) as stream:
        chunks = list(stream)
    assert said(chunks) == "All is well"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage and chunks[-1].usage.total_tokens > 0


@scenario
def chat_stream_byte_by_byte_and_crlf() -> None:
    assert said(client.chat.completions.create(model="wire", messages=HI, stream=True)) == "Grüße, 世界"


@scenario
async def chat_async() -> None:
    async with AsyncOpenAI(base_url=f"{GATEWAY}/v1", api_key=KEY, max_retries=0, timeout=20) as many:
        answers = await asyncio.gather(*(many.chat.completions.create(model="failover", messages=HI) for _ in range(20)))
        assert [a.choices[0].message.content for a in answers] == ["served"] * 20
        text = ""
        async for chunk in await many.chat.completions.create(model="failover", messages=HI, stream=True):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        assert text == "served", text


@scenario
def chat_stream_helper() -> None:
    with client.chat.completions.stream(model="good", messages=HI, extra_headers=mock("text=Helped")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Helped" and "content.delta" in kinds and kinds[-1] == "content.done"


@scenario
def chat_parsed() -> None:
    class Place(BaseModel):
        city: str

    answer = client.chat.completions.parse(model="good", messages=HI, response_format=Place)
    assert isinstance(answer.choices[0].message.parsed, Place)


@scenario
def chat_tool_call() -> None:
    tools: Any = [{"type": "function", "function": WEATHER}]
    answer = client.chat.completions.create(model="good", messages=HI, tools=tools, extra_headers=mock("tool=get_weather"))
    call = answer.choices[0].message.tool_calls[0]  # type: ignore[index]
    assert call.function.name == "get_weather" and "city" in call.function.arguments and answer.choices[0].finish_reason == "tool_calls"
    name, arguments = "", ""
    for chunk in client.chat.completions.create(model="good", messages=HI, tools=tools, stream=True, extra_headers=mock("tool=get_weather")):
        for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            name += part.function.name or "" if part.function else ""
            arguments += part.function.arguments or "" if part.function else ""
    assert (name, arguments) == ("get_weather", call.function.arguments)


@scenario
def responses() -> None:
    answer = client.responses.create(model="good", input="Hi", extra_headers=mock("text=Fine"))
    assert answer.output_text == "Fine" and answer.status == "completed"


@scenario
def responses_stream() -> None:
    with client.responses.create(model="good", input="Hi", stream=True, extra_headers=mock('text="All is well"')) as stream:
        events = list(stream)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "All is well"
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    with client.responses.stream(model="good", input="Hi", extra_headers=mock("text=Helped")) as helper:
        assert helper.get_final_response().output_text == "Helped"


@scenario
def responses_tool_call() -> None:
    tools: Any = [{"type": "function", **WEATHER}]
    with client.responses.create(model="good", input="Hi", tools=tools, stream=True, extra_headers=mock("tool=get_weather")) as stream:
        final = [e for e in stream if e.type == "response.completed"][0].response
    assert [(o.type, o.name) for o in final.output] == [("function_call", "get_weather")]


@scenario
def embeddings() -> None:
    answer = client.embeddings.create(model="good", input=["one", "two"])
    assert len(answer.data) == 2 and all(isinstance(x, float) for x in answer.data[0].embedding) and answer.data[0].embedding != answer.data[1].embedding
    floats = client.embeddings.create(model="good", input="one", encoding_format="float")
    assert floats.data[0].embedding == answer.data[0].embedding


@scenario
def images() -> None:
    made = client.images.generate(model="good", prompt="A red boat")
    assert made.data and base64.b64decode(made.data[0].b64_json or "")[:4] == b"\x89PNG"
    edited = client.images.edit(model="good", image=("boat.png", io.BytesIO(PNG), "image/png"), prompt="Now blue")
    assert edited.data and edited.data[0].b64_json
    with client.images.generate(model="good", prompt="A red boat", stream=True, partial_images=1) as stream:
        assert [event.type for event in stream] == ["image_generation.partial_image", "image_generation.completed"]


@scenario
def models() -> None:
    # The lists of providers are fetched behind the start.
    wait_for("the models of the providers", lambda: "u1/mock-small" in {model.id for model in client.models.list()})
    names = {model.id for model in client.models.list()}
    assert {"good", "failover", "u1/mock-small", "u2/mock-small"} <= names, names
    assert client.models.retrieve("good").id == "good"
    with raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


# Failover and what the answer tells of it


@scenario
def failover_before_content() -> None:
    raw = client.chat.completions.with_raw_response.create(model="failover", messages=HI)
    assert raw.parse().choices[0].message.content == "served"
    assert (raw.headers["x-surefoot-source"], raw.headers["x-surefoot-attempts"]) == ("u2/key1", "2"), dict(raw.headers)
    with client.chat.completions.with_streaming_response.create(model="failover", messages=HI, stream=True) as answer:
        assert (answer.headers["x-surefoot-source"], answer.headers["x-surefoot-attempts"]) == ("u2/key1", "2"), dict(answer.headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert said(answer.parse()) == "served"


@scenario
def failover_in_responses_embeddings_and_images() -> None:
    assert client.responses.create(model="failover", input="Hi").output_text == "served"
    with client.responses.create(model="failover", input="Hi", stream=True) as stream:
        events = list(stream)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "served"
    assert [e.type for e in events].count("response.created") == 1, "the failed attempt's openers are not to be seen"
    assert client.embeddings.with_raw_response.create(model="failover", input="Hi").headers["x-surefoot-attempts"] == "2"
    assert client.images.generate(model="image-failover", prompt="A red boat").data


@scenario
def request_id() -> None:
    answer = client.chat.completions.create(model="good", messages=HI, extra_headers={"x-request-id": "mine-1"})
    assert answer._request_id == "mine-1"
    assert client.chat.completions.create(model="good", messages=HI)._request_id
    with raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=HI)
    assert caught.error.request_id and caught.error.response.headers["x-surefoot-attempts"] == "0"


@scenario
def retry_after_is_waited_out() -> None:
    begun = time.monotonic()
    raw = client.chat.completions.with_raw_response.create(model="waits", messages=HI)
    assert raw.headers["x-surefoot-attempts"] == "2" and 0.9 < time.monotonic() - begun < 5


# stream_incomplete


@scenario
def chat_stream_that_breaks_after_content() -> None:
    text = ""
    with raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(model="breaks", messages=HI, stream=True):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    assert caught.error.code == "stream_incomplete" and caught.error.type == "provider_error"
    assert caught.error.message.startswith("stream_incomplete") and "u1" in caught.error.message, caught.error.message
    assert text == "Hello! This ", text


@scenario
def responses_stream_that_breaks_after_content() -> None:
    with client.responses.create(model="breaks", input="Hi", stream=True) as stream:
        events = list(stream)
    last: Any = events[-1]
    assert (last.type, last.code) == ("error", "stream_incomplete") and last.message.startswith("stream_incomplete"), last
    assert last.sequence_number == events[-2].sequence_number + 1
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello! This "


# Errors, each as the SDK's own exception

STATUSES: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError), (403, openai.PermissionDeniedError), (404, openai.NotFoundError), (409, openai.ConflictError),
    (413, openai.APIStatusError), (422, openai.UnprocessableEntityError), (500, openai.InternalServerError),
    (502, openai.InternalServerError), (503, openai.InternalServerError), (504, openai.InternalServerError), (529, openai.InternalServerError),
]


def errs(status: int, kind: type[openai.APIStatusError], model: str, directives: str | None) -> None:
    """A chat, a chat stream, a response and an embedding, all of which end in the same error of the upstream."""
    headers = mock(directives) if directives else {}
    calls: list[Any] = [
        lambda: client.chat.completions.create(model=model, messages=HI, extra_headers=headers),
        lambda: client.chat.completions.create(model=model, messages=HI, stream=True, extra_headers=headers),
        lambda: client.responses.create(model=model, input="Hi", stream=True, extra_headers=headers),
        lambda: client.embeddings.create(model=model, input="Hi", extra_headers=headers),
    ]
    for call in calls if directives else calls[:1]:
        with raises(kind) as caught:
            call()
        assert caught.error.status_code == status, caught.error
        assert caught.error.response.headers["x-surefoot-attempts"] == "1"
        if directives:
            assert caught.error.body["message"] == f"told to {status}", caught.error.body


@each(*STATUSES)
def error_of_the_upstream(status: int, kind: type[openai.APIStatusError]) -> None:
    errs(status, kind, "good", f'{status},message="told to {status}"')


@scenario
def rate_limit() -> None:
    for attempts in ("1", "0"):  # the second call finds the source at rest
        with raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="busy", messages=HI, stream=attempts == "0")
        headers = caught.error.response.headers
        assert headers["x-surefoot-attempts"] == attempts and 1 <= int(headers["retry-after"]) <= 7, dict(headers)
        assert caught.error.body["message"]


@scenario
def error_401_and_quota_of_the_upstream() -> None:
    errs(401, openai.AuthenticationError, "revoked", None)
    errs(429, openai.RateLimitError, "unpaid", None)


@scenario
def error_behind_a_200() -> None:
    with raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="good", messages=HI, extra_headers=mock("error=503"))
    assert caught.error.status_code == 503
    with raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="good", messages=HI, stream=True, extra_headers=mock("error=503"))
    assert caught.error.status_code == 503


@scenario
def wrong_client_key() -> None:
    with raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").chat.completions.create(model="good", messages=HI)
    assert caught.error.type == "authentication_error" and "wrong" not in caught.error.message


@scenario
def unknown_model() -> None:
    with raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=HI, stream=True)
    assert (caught.error.code, caught.error.type) == ("model_not_found", "not_found_error") and "no-such-model" in caught.error.message


@scenario
def model_of_another_protocol() -> None:
    with raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="claude", messages=HI)
    assert caught.error.type == "invalid_request_error"


@scenario
def bad_requests() -> None:
    with raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", cast_to=object, content=b'{"model": "good", ', options={"headers": {"content-type": "application/json"}})
    assert caught.error.type == "invalid_request_error"
    with raises(openai.BadRequestError):
        client.post("/chat/completions", cast_to=object, body={"messages": HI})
    with raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model="good", messages=[{"role": "user", "content": "x" * 100_000}])
    assert (caught.error.status_code, caught.error.type) == (413, "invalid_request_error")
    with raises(openai.NotFoundError):
        client.post("/no/such/route", cast_to=object, body={})


@scenario
def nobody_answers() -> None:
    with raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="closes", messages=HI)
    assert (caught.error.status_code, caught.error.type) == (502, "provider_error") and caught.error.response.headers["x-surefoot-attempts"] == "2"
    for stream in (False, True):
        with raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="stalls", messages=HI, stream=stream)
        assert (caught.error.status_code, caught.error.type) == (504, "provider_error")


# Retries of the SDK


@scenario
def the_sdk_honours_our_retry_after() -> None:
    begun = time.monotonic()
    answer = client.with_options(max_retries=1).chat.completions.create(
        model="hurried", messages=HI, extra_headers=mock("429:retry-after=2; ok,text=later"))
    assert answer.choices[0].message.content == "later" and 1.9 < time.monotonic() - begun < 10


@scenario
def the_sdk_does_not_retry_what_used_up_its_budget() -> None:
    word = mark()
    with raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=3).chat.completions.create(model="budget", messages=[{"role": "user", "content": word}])
    headers = caught.error.response.headers
    assert (headers["x-surefoot-stop"], headers["x-should-retry"], headers["x-surefoot-attempts"]) == ("routing_transfer_limit_reached", "false", "2")
    assert len(seen(word)) == 2, "two attempts of the gateway for one request of the SDK"


# Leaving


@scenario
def closing_a_stream_drops_the_upstream() -> None:
    word = mark()
    stream = client.chat.completions.create(model="slow", messages=[{"role": "user", "content": word}], stream=True)
    next(iter(stream))
    stream.close()
    wait_for("the upstream is left", lambda: [one["end"] for one in seen(word)] == ["left"])


@scenario
def a_timeout_of_the_client_drops_the_upstream() -> None:
    word = mark()
    with raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(model="stalls", messages=[{"role": "user", "content": word}])
    wait_for("the upstream is left", lambda: [one["end"] for one in seen(word)] == ["left"])


@scenario
async def a_cancelled_task_drops_the_upstream() -> None:
    word = mark()
    async with AsyncOpenAI(base_url=f"{GATEWAY}/v1", api_key=KEY, max_retries=0, timeout=20) as many:
        task = asyncio.create_task(many.responses.create(model="stalls", input=word))
        await asyncio.to_thread(wait_for, "the request to arrive", lambda: len(seen(word)) == 1)
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError), result
        await asyncio.to_thread(wait_for, "the upstream is left", lambda: [one["end"] for one in seen(word)] == ["left"])


if __name__ == "__main__":
    main()
