"""The information in the grammar reference's corpus, of each byte and in the long run."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reference_models.grammar_corpus import START, Choice, State, grammar


def nats_of_bytes(text: bytes) -> NDArray[np.float64]:
    """Return the information of each byte of a text from START on, given all bytes before it.

    Their mean over a text is the loss of a model that knows the grammar, the lowest to expect. The
    bytes of a token that was cut off at the end count too. Raises ValueError at a byte that the
    grammar cannot write.
    """
    states, weights = grammar(), _prefix_weights()
    nats = np.empty(len(text))
    state, begin = START, 0
    for end in range(1, len(text) + 1):
        before, after = (weights[state].get(text[begin:e], 0) for e in (end - 1, end))
        if not after:
            raise ValueError(f"byte {end - 1}: the grammar has no {text[begin:end]!r} in {state}")
        nats[end - 1] = math.log(before / after)
        if text[end - 1 : end] in b" \n":
            choice = states[state]
            state, begin = choice.following[choice.tokens.index(text[begin:end])], end
    return nats


@lru_cache(maxsize=1)
def _prefix_weights() -> dict[State, dict[bytes, int]]:
    return {state: _weights_by_prefix(choice) for state, choice in grammar().items()}


def _weights_by_prefix(choice: Choice) -> dict[bytes, int]:
    """Sum the weights of all tokens that begin with each prefix. The empty prefix has them all."""
    weights: dict[bytes, int] = {}
    for token, weight in zip(choice.tokens, choice.weights, strict=True):
        for end in range(len(token) + 1):
            weights[token[:end]] = weights.get(token[:end], 0) + weight
    return weights


def entropy_nats_per_byte() -> float:
    """Return the entropy rate of the text: nats per choice over bytes per choice, in the long run.

    Source: Shannon (1948), section 7, a source with states known from its text.
    """
    states = grammar()
    nats, lengths = [], []
    for choice in states.values():
        weights = np.array(choice.weights, dtype=np.float64)
        shares = weights / weights.sum()
        nats.append(-float(shares @ np.log(shares)))
        lengths.append(float(shares @ [len(token) for token in choice.tokens]))
    visits = _long_run_shares(states)
    return float(visits @ nats / (visits @ lengths))


def _long_run_shares(states: dict[State, Choice]) -> NDArray[np.float64]:
    """Return each state's share in the long run: the vector that one step leaves unchanged."""
    place = {state: index for index, state in enumerate(states)}
    step = np.zeros((len(states), len(states)))
    for state, choice in states.items():
        for following, weight in zip(choice.following, choice.weights, strict=True):
            step[place[state], place[following]] += weight / choice.running[-1]
    equations = np.vstack([step.T - np.eye(len(states)), np.ones(len(states))])
    shares, *_ = np.linalg.lstsq(equations, np.append(np.zeros(len(states)), 1.0), rcond=None)
    return np.asarray(shares)
