"""Runs functions marked as scenarios: each prints `ok NAME` or `FAIL NAME`, the last line is `N passed, N failed`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import os
import sys
import time
import traceback
import urllib.request
from typing import Any, Callable, Iterator

GATEWAY = os.environ["GATEWAY_URL"]
MOCK = os.environ["MOCK_URL"]
KEY = os.environ["CLIENT_KEY"]

_all: list[tuple[str, Callable[[], Any]]] = []
_numbers = itertools.count(1)


def scenario(run: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function without arguments, plain or async, as a scenario."""
    _all.append((run.__name__, run))
    return run


def each(*cases: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a function as one scenario for each tuple of arguments."""

    def mark(run: Callable[..., Any]) -> Callable[..., Any]:
        for case in cases:
            shown = "-".join(getattr(part, "__name__", str(part)) for part in case)
            _all.append((f"{run.__name__}[{shown}]", lambda case=case: run(*case)))
        return run

    return mark


def mock(directives: str) -> dict[str, str]:
    """A header that makes the mock behave like this."""
    return {"x-mock": directives}


def mark() -> str:
    """A word that no other scenario says: the mock's record of requests is searched for it."""
    return f"mark-{os.getpid()}-{next(_numbers)}"


@contextlib.contextmanager
def raises(kind: type[BaseException]) -> Iterator[Any]:
    """Expects an exception of exactly this class; its attributes are on the yielded object afterwards."""
    caught = type("Caught", (), {})()
    try:
        yield caught
    except BaseException as problem:
        assert type(problem) is kind, f"expected {kind.__name__}, got {type(problem).__module__}.{type(problem).__name__}: {problem}"
        caught.error = problem
    else:
        raise AssertionError(f"expected {kind.__name__}, got an answer")


def seen(mark: str) -> list[dict[str, Any]]:
    """The requests that reached the mock with `mark` in their body."""
    with urllib.request.urlopen(f"{MOCK}/_mock/requests", timeout=10) as answer:
        return [one for one in json.load(answer)["requests"] if mark in one["body"]]


def wait_for(what: str, done: Callable[[], bool], seconds: float = 10.0) -> None:
    """Looks again and again until `done` holds."""
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)


def main() -> None:
    """Runs what is marked, or of it what the arguments name a part of."""
    chosen = [(name, run) for name, run in _all if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    failed = 0
    for name, run in chosen:
        try:
            result = run()
            if inspect.isawaitable(result):
                asyncio.run(result)  # type: ignore[arg-type]
            print(f"ok {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)
