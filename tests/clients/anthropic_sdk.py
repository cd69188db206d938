"""The official Anthropic SDK for Python, against a gateway with `gateway.toml` and the mock behind it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anthropic
from anthropic import Anthropic, AsyncAnthropic

from scenarios import GATEWAY, KEY, each, main, mark, mock, raises, scenario, seen, wait_for

# Retries of the SDK's own would hide what a single request sees; scenarios that are about them ask for them.
client = Anthropic(base_url=GATEWAY, api_key=KEY, max_retries=0, timeout=20)
HI: Any = {"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def saying(word: str) -> Any:
    """A request with this text."""
    return {"max_tokens": 64, "messages": [{"role": "user", "content": word}]}


def said(events: Any) -> str:
    """The text of a stream."""
    return "".join(e.delta.text for e in events if e.type == "content_block_delta" and e.delta.type == "text_delta")


# Good answers


@scenario
def messages() -> None:
    answer = client.messages.create(model="claude", **HI, extra_headers=mock("text=Fine"))
    assert [(block.type, block.text) for block in answer.content] == [("text", "Fine")] and answer.stop_reason == "end_turn"  # type: ignore[union-attr]
    assert answer.usage.output_tokens > 0


@scenario
def messages_stream() -> None:
    with client.messages.create(model="claude", **HI, stream=True, extra_headers=mock('text="All is well"')) as stream:
        events = list(stream)
    assert said(events) == "All is well" and events[0].type == "message_start" and events[-1].type == "message_stop"


@scenario
def messages_stream_helper() -> None:
    with client.messages.stream(model="claude-wire", **HI) as stream:
        assert "".join(stream.text_stream) == "Grüße, 世界"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.content[0].text == "Grüße, 世界"  # type: ignore[union-attr]


@scenario
async def messages_async() -> None:
    async with AsyncAnthropic(base_url=GATEWAY, api_key=KEY, max_retries=0, timeout=20) as many:
        answers = await asyncio.gather(*(many.messages.create(model="claude-failover", **HI) for _ in range(20)))
        assert [answer.content[0].text for answer in answers] == ["served"] * 20  # type: ignore[union-attr]
        async with many.messages.stream(model="claude-failover", **HI) as stream:
            assert await stream.get_final_text() == "served"


@scenario
def bearer_token() -> None:
    with Anthropic(base_url=GATEWAY, auth_token=KEY, max_retries=0, timeout=20) as bearer:
        assert bearer.messages.create(model="claude", **HI).content


@scenario
def tool_call() -> None:
    answer = client.messages.create(model="claude", **HI, tools=[WEATHER], extra_headers=mock("tool=get_weather"))
    call: Any = answer.content[0]
    assert (call.type, call.name, answer.stop_reason) == ("tool_use", "get_weather", "tool_use") and "city" in call.input
    with client.messages.stream(model="claude", **HI, tools=[WEATHER], extra_headers=mock("tool=get_weather")) as stream:
        streamed: Any = stream.get_final_message().content[0]
    assert (streamed.type, streamed.name, streamed.input) == ("tool_use", "get_weather", call.input)


@scenario
def count_tokens() -> None:
    counted = client.messages.count_tokens(model="claude", messages=HI["messages"])
    assert counted.input_tokens > 0
    raw = client.messages.with_raw_response.count_tokens(model="claude-failover", messages=HI["messages"])
    assert raw.headers["x-surefoot-attempts"] == "2" and raw.parse().input_tokens > 0


@scenario
def models() -> None:
    wait_for("the models of the providers", lambda: "a1/mock-small" in {model.id for model in client.models.list()})
    names = {model.id for model in client.models.list()}
    assert {"claude", "claude-failover", "a1/mock-small", "a2/mock-small"} <= names, names
    assert client.models.retrieve("claude").id == "claude"
    with raises(anthropic.NotFoundError):
        client.models.retrieve("no-such-model")


# Failover and what the answer tells of it


@scenario
def failover_before_content() -> None:
    raw = client.messages.with_raw_response.create(model="claude-failover", **HI)
    assert raw.parse().content[0].text == "served"  # type: ignore[union-attr]
    assert (raw.headers["x-surefoot-source"], raw.headers["x-surefoot-attempts"]) == ("a2/key1", "2"), dict(raw.headers)
    with client.messages.with_streaming_response.create(model="claude-failover", **HI, stream=True) as answer:
        assert (answer.headers["x-surefoot-source"], answer.headers["x-surefoot-attempts"]) == ("a2/key1", "2"), dict(answer.headers)
        events = list(answer.parse())
    assert said(events) == "served"
    assert [event.type for event in events].count("message_start") == 1, "the failed attempt's openers are not to be seen"


@scenario
def request_id() -> None:
    answer = client.messages.with_raw_response.create(model="claude", **HI, extra_headers={"x-request-id": "mine-2"})
    assert answer.headers["x-request-id"] == "mine-2"
    with raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="no-such-model", **HI)
    assert caught.error.body["request_id"] == caught.error.response.headers["x-request-id"]


# stream_incomplete


@scenario
def stream_that_breaks_after_content() -> None:
    text = ""
    with raises(anthropic.APIStatusError) as caught:
        for event in client.messages.create(model="claude-breaks", **HI, stream=True):
            text += said([event])
    assert caught.error.type == "api_error", caught.error.body
    assert caught.error.api_message.startswith("stream_incomplete: ") and "a1" in caught.error.api_message, caught.error.api_message
    assert text == "Hello! This ", text
    with raises(anthropic.APIStatusError) as caught:
        with client.messages.stream(model="claude-breaks", **HI) as stream:
            stream.get_final_text()
    assert "stream_incomplete" in caught.error.message


# Errors, each as the SDK's own exception

STATUSES: list[tuple[int, type[anthropic.APIStatusError]]] = [
    (400, anthropic.BadRequestError), (403, anthropic.PermissionDeniedError), (404, anthropic.NotFoundError), (409, anthropic.ConflictError),
    (413, anthropic.RequestTooLargeError), (422, anthropic.UnprocessableEntityError),
    (500, anthropic.InternalServerError), (502, anthropic.InternalServerError), (503, anthropic.ServiceUnavailableError),
    (504, anthropic.GatewayTimeoutError), (529, anthropic.OverloadedError),
]


def errs(status: int, kind: type[anthropic.APIStatusError], model: str, directives: str | None) -> None:
    """A message, a stream and a count, all of which end in the same error of the upstream."""
    headers = mock(directives) if directives else {}
    calls: list[Any] = [
        lambda: client.messages.create(model=model, **HI, extra_headers=headers),
        lambda: client.messages.create(model=model, **HI, stream=True, extra_headers=headers),
        lambda: client.messages.count_tokens(model=model, messages=HI["messages"], extra_headers=headers),
    ]
    for call in calls if directives else calls[:1]:
        with raises(kind) as caught:
            call()
        assert caught.error.status_code == status, caught.error
        assert caught.error.response.headers["x-surefoot-attempts"] == "1"
        if directives:
            assert caught.error.api_message == f"told to {status}", caught.error.body


@each(*STATUSES)
def error_of_the_upstream(status: int, kind: type[anthropic.APIStatusError]) -> None:
    errs(status, kind, "claude", f'{status},message="told to {status}"')


@scenario
def rate_limit() -> None:
    for attempts in ("1", "0"):  # the second call finds the source at rest
        with raises(anthropic.RateLimitError) as caught:
            client.messages.create(model="claude-busy", **HI, stream=attempts == "0")
        headers = caught.error.response.headers
        assert headers["x-surefoot-attempts"] == attempts and 1 <= int(headers["retry-after"]) <= 7, dict(headers)
        assert caught.error.type == "rate_limit_error"


@scenario
def error_401_of_the_upstream() -> None:
    errs(401, anthropic.AuthenticationError, "claude-revoked", None)


@scenario
def error_before_content_becomes_a_status() -> None:
    with raises(anthropic.OverloadedError) as caught:
        client.messages.create(model="claude", **HI, stream=True, extra_headers=mock("error=529"))
    assert (caught.error.status_code, caught.error.type) == (529, "overloaded_error")


@scenario
def wrong_client_key() -> None:
    with raises(anthropic.AuthenticationError) as caught:
        client.with_options(api_key="wrong").messages.create(model="claude", **HI)
    assert caught.error.type == "authentication_error" and "wrong" not in caught.error.message


@scenario
def unknown_model() -> None:
    with raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="no-such-model", **HI, stream=True)
    assert caught.error.type == "not_found_error" and "no-such-model" in caught.error.message


@scenario
def model_of_another_protocol() -> None:
    with raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="good", **HI)
    assert caught.error.type == "invalid_request_error"


@scenario
def bad_requests() -> None:
    with raises(anthropic.BadRequestError) as caught:
        client.post("/v1/messages", cast_to=object, body={"max_tokens": 64, "messages": HI["messages"]})
    assert caught.error.type == "invalid_request_error"
    with raises(anthropic.RequestTooLargeError) as caught:
        client.messages.create(model="claude", **saying("x" * 100_000))
    assert caught.error.status_code == 413


@scenario
def nobody_answers() -> None:
    with raises(anthropic.InternalServerError) as caught:
        client.messages.create(model="claude-closes", **HI)
    assert (caught.error.status_code, caught.error.type) == (502, "api_error") and caught.error.response.headers["x-surefoot-attempts"] == "2"
    for stream in (False, True):
        with raises(anthropic.GatewayTimeoutError) as caught:
            client.messages.create(model="claude-stalls", **HI, stream=stream)
        assert (caught.error.status_code, caught.error.type) == (504, "api_error")


# Retries of the SDK


@scenario
def the_sdk_honours_our_retry_after() -> None:
    begun = time.monotonic()
    answer = client.with_options(max_retries=1).messages.create(
        model="claude-hurried", **HI, extra_headers=mock("429:retry-after=2; ok,text=later"))
    assert answer.content[0].text == "later" and 1.9 < time.monotonic() - begun < 10  # type: ignore[union-attr]


@scenario
def the_sdk_does_not_retry_what_used_up_its_budget() -> None:
    word = mark()
    with raises(anthropic.ServiceUnavailableError) as caught:
        client.with_options(max_retries=3).messages.create(model="claude-budget", **saying(word))
    headers = caught.error.response.headers
    assert (headers["x-surefoot-stop"], headers["x-should-retry"], headers["x-surefoot-attempts"]) == ("routing_transfer_limit_reached", "false", "2")
    assert len(seen(word)) == 2, "two attempts of the gateway for one request of the SDK"


# Leaving


@scenario
def closing_a_stream_drops_the_upstream() -> None:
    word = mark()
    stream = client.messages.create(model="claude-slow", **saying(word), stream=True)
    next(iter(stream))
    stream.close()
    wait_for("the upstream is left", lambda: [one["end"] for one in seen(word)] == ["left"])


@scenario
def a_timeout_of_the_client_drops_the_upstream() -> None:
    word = mark()
    with raises(anthropic.APITimeoutError):
        client.with_options(timeout=0.3).messages.create(model="claude-stalls", **saying(word))
    wait_for("the upstream is left", lambda: [one["end"] for one in seen(word)] == ["left"])


if __name__ == "__main__":
    main()
