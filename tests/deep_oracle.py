"""A deep readout a second time: plain float64 NumPy, one sentence and one token at a time, written
from the equations."""

import numpy as np

from tests import oracle


def float64(arrays):
    """The same nested dicts with arrays of float64."""
    if isinstance(arrays, dict):
        return {name: float64(array) for name, array in arrays.items()}
    return np.asarray(arrays, np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- frozen cells: features after each token, (T, F) ----


def diagonal(arrays, sentence):
    """s' = (1 - g) s + g c(u), g = 1 - exp(-f(u) / tau); the features are s sqrt((2 - g0) / g0), g0
    = 1 - exp(-1 / tau)."""
    codes, time_scales, factors = (arrays.get(name) for name in ("codes", "time_scales", "factors"))
    s, found = np.zeros(len(time_scales)), []
    for token in sentence:
        g = 1 - np.exp(-(1 if factors is None else factors[token]) / time_scales)
        s = (1 - g) * s + g * codes[token]
        found.append(s)
    at_rest = 1 - np.exp(-1 / time_scales)
    return np.array(found) * np.sqrt((2 - at_rest) / at_rest)


def gru(u_z, u_r, u_c, w_z, w_r, w_c, bias, sentence):
    """h' = (1 - z) h + z tanh(U_c (r h) + W_c u), all matrices dense."""
    h, found = np.zeros(len(bias)), []
    for token in sentence:
        z = sigmoid(bias + u_z @ h + w_z[:, token])
        r = sigmoid(u_r @ h + w_r[:, token])
        h = (1 - z) * h + z * np.tanh(u_c @ (r * h) + w_c[:, token])
        found.append(h)
    return np.array(found)


def history(sentence, count):
    """The last tokens after each token, the newest first: ids plus 1, and 0 before the sentence
    began."""
    return np.array(
        [[sentence[t - k] + 1 if t >= k else 0 for k in range(count)] for t in range(len(sentence))]
    )


def attention(projection, heads, window, sharpness, h):
    """a_{t,m}, (T, heads, L), of states h (T, N)."""
    found = np.zeros((len(h), heads, window))
    for head, p in enumerate(np.split(projection, heads)):
        keys = h @ p.T
        keys = keys / np.linalg.norm(keys, axis=1, keepdims=True)
        for t in range(1, len(h)):
            past = min(t, window)
            weights = np.exp([sharpness * keys[t] @ keys[t - m] for m in range(1, past + 1)])
            found[t, head, :past] = weights / weights.sum()
    return found


# ---- the trunk: z after each token, (T, r) ----


def bucket(ngram, buckets):
    """The bucket of an n-gram of ids plus 1, the newest first, in whole numbers of any size."""
    mixed = 0
    for number in ngram:
        mixed = (mixed ^ int(number)) * 0x9E3779B1 % 2**32
        mixed ^= mixed >> 15
    mixed = mixed * 0x85EBCA6B % 2**32
    mixed ^= mixed >> 13
    return mixed % buckets


def recent_tokens(params, sentence, count, decays=(), window=0, weights=None, a=None):
    """What the last tokens, fading sums and heads of attention (T, heads, L) add; embeddings are of
    their own, or A's rows."""
    embedding, found = params["embedding"] if a is None else np.sqrt(a.shape[1]) * a, []
    for t in range(len(sentence)):
        nothing = np.zeros(embedding.shape[1])
        last = [embedding[sentence[t - k]] if t >= k else nothing for k in range(len(sentence))]
        vectors = last[:count] + [nothing] * (count - len(last))
        for decay in decays:
            powers = decay ** np.arange(window)
            vectors.append(
                sum(p * x for p, x in zip(powers, last, strict=False)) / np.sqrt((powers**2).sum())
            )
        for head in [] if weights is None else weights[t]:
            vectors.append(sum((a * x for a, x in zip(head, last, strict=False)), nothing))
        found.append(params["weights"] @ np.concatenate(vectors))
    return np.array(found)


def ngrams(params, sentence, orders, multiplier=1):
    """What n-grams add."""
    found = []
    for last in history(sentence, max(orders)):
        rows = [
            table[bucket(last[:n], len(table))]
            for n, table in zip(orders, params["tables"], strict=True)
        ]
        found.append(multiplier * params["weights"] @ np.concatenate(rows))
    return np.array(found)


def norm(z, gains):
    return gains * z / np.sqrt((z**2).mean(axis=1, keepdims=True) + 1e-6)


def gated_mlp(params, z):
    """Blocks of z + W_down (silu(W_gate n(z)) * W_up n(z)), and a norm."""
    for block in params.get("blocks", {}).values():
        normed = norm(z, block["norm"]["gains"])
        gate = normed @ block["gate"].T
        z = z + (gate * sigmoid(gate) * (normed @ block["up"].T)) @ block["down"].T
    return norm(z, params["norm"]["gains"])


def standardized(h):
    centred = h - h.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)


# ---- the whole ----


def nll(readout, z, targets):
    """The mean NLL in nats of targets (C,) from z (C, r)."""
    return -oracle.log_softmax(oracle.logits(readout, z))[np.arange(len(targets)), targets].mean()
