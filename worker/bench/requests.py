"""Requests to a model that generates tokens: `python -m worker.bench.requests`, for a batch size.

It reads {"model", "precision", "device", "threads", "scenario", "batch_size", "requests",
"prompt_tokens", "output_tokens", "kv_cache", "rate"} and answers {"requests": [[arrival, first
token, last token], ...]} in seconds since the start.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any

import torch
from torch import Tensor

from finishline.rules.errors import RuleError
from reference_models.distributed import check_device
from reference_models.memory import naming_batch_size
from worker.bench.models import build_generator
from worker.events import answer_or_reason
from worker.machine.clock import synchronise
from worker.machine.kernels import ARITHMETIC

SEED = 0
WARM_UP_TOKENS = 2

Moments = tuple[float, float]
Request = tuple[float, float, float]


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    device, arithmetic = told["device"], ARITHMETIC[told["precision"]]
    torch.backends.cudnn.benchmark = True
    check_device(device)
    model = build_generator(told["model"]).to(device, arithmetic.dtype).eval()
    draw = torch.Generator().manual_seed(SEED)
    shape = told["batch_size"], told["prompt_tokens"]
    naming = naming_batch_size(told["batch_size"], device=device)
    with naming, arithmetic.switched_on(), torch.inference_mode():
        blank = torch.zeros(shape, dtype=torch.long, device=device)
        vocabulary = warm_up(model, blank, told)
        prompts = torch.randint(vocabulary, (told["requests"], shape[1]), generator=draw).to(device)

        def run(first: int, count: int) -> Moments:
            return generate(model, prompts[first : first + count], told["output_tokens"], told)

        size, in_turn = told["batch_size"], told["scenario"] == "single-stream"
        return {"requests": serve(run, arrivals_of(told), batch_size=size, in_turn=in_turn)}


def warm_up(model: Any, prompt: Tensor, told: Mapping[str, Any]) -> int:
    """Make some tokens off the clock. Returns the size of the vocabulary. Raises RuleError."""
    try:
        answered = model(prompt, past_key_values=None, use_cache=told["kv_cache"])
        vocabulary = int(answered.logits.shape[-1])
    except (AttributeError, TypeError) as error:
        raise RuleError(
            f"{told['model']} cannot be called as transformers calls a model ({error})",
            expected="model(input_ids, past_key_values=None, use_cache=True) with .logits",
        ) from error
    if told["kv_cache"] and getattr(answered, "past_key_values", None) is None:
        raise RuleError(
            f"{told['model']} answers without past_key_values, so it has no cache",
            expected="--no-kv-cache for such a model",
        )
    generate(model, prompt, min(WARM_UP_TOKENS, told["output_tokens"]), told)
    return vocabulary


def generate(model: Any, prompt: Tensor, tokens: int, told: Mapping[str, Any]) -> Moments:
    """Moments of the first and last of so many likeliest tokens after each prompt, (B, T)."""
    given, past, first = prompt, None, 0.0
    for made in range(tokens):
        answered = model(given, past_key_values=past, use_cache=told["kv_cache"])
        token = answered.logits[:, -1].argmax(dim=-1, keepdim=True)  # (B, 1)
        if told["kv_cache"]:
            given, past = token, answered.past_key_values
        else:
            given = torch.cat([given, token], dim=1)
        synchronise(told["device"])
        if made == 0:
            first = time.perf_counter()
    return first, time.perf_counter()


def serve(
    run: Callable[[int, int], Moments],
    arrivals: Sequence[float],
    *,
    batch_size: int,
    in_turn: bool = False,
) -> list[Request]:
    """Answer requests by arrival, up to a batch at once. `in_turn` waits for each answer."""
    started = time.perf_counter()
    done: list[Request] = []
    while len(done) < len(arrivals):
        position = len(done)
        wait = arrivals[position] - (time.perf_counter() - started)
        if wait > 0:
            time.sleep(wait)
        now = time.perf_counter() - started
        count = max(1, min(batch_size, bisect_right(arrivals, now) - position))
        first, last = run(position, count)
        for arrival in arrivals[position : position + count]:
            done.append((now if in_turn else arrival, first - started, last - started))
    return done


def arrivals_of(told: Mapping[str, Any]) -> list[float]:
    """Return seconds at which requests arrive: a Poisson process, or all at the start."""
    if told["scenario"] != "server":
        return [0.0] * int(told["requests"])
    draw = Random(SEED)  # noqa: S311 - no secret
    return list(accumulate(draw.expovariate(told["rate"]) for _ in range(told["requests"])))


if __name__ == "__main__":
    answer_or_reason(answer)
