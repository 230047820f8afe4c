"""The science a second time: plain float64 NumPy, dense matrices, one sentence and one step at a
time.

Written from the equations of Ueda et al. 2025a, sharing nothing with the package, so that the two
can only agree by both being right.
"""

import numpy as np


def dense(matrix):
    """A matrix in float64, of an array or of positions `indices` and values `data`, as JAX's BCOO
    has them."""
    if not hasattr(matrix, "indices"):
        return np.asarray(matrix, np.float64)
    found, (row, column) = np.zeros(matrix.shape), np.asarray(matrix.indices).T
    found[row, column] = matrix.data
    return found


def matrices(reservoir):
    """W_rec, W_in and the leaks of one layer, in float64."""
    return (
        dense(reservoir.stored_w_rec),
        dense(reservoir.stored_w_in),
        np.asarray(reservoir.leak, np.float64),
    )


def states(w_rec, w_in, leak, sentence, f=np.tanh):
    """h_1 .. h_T, (T, N), of h' = (1 - a) h + a f(W_rec h + W_in u), h_0 = 0."""
    w_rec, w_in, leak = (np.asarray(array, np.float64) for array in (w_rec, w_in, leak))
    h, found = np.zeros(len(leak)), []
    for token in sentence:
        u = np.zeros(w_in.shape[1])
        u[token] = 1.0
        h = (1 - leak) * h + leak * f(w_rec @ h + w_in @ u)
        found.append(h)
    return np.array(found)


def logits(readout, h):
    """o = W_out h + b_out, (T, V), for h (T, N) and a readout {"a", "b", "bias"} or {"w",
    "bias"}."""
    readout = {name: np.asarray(array, np.float64) for name, array in readout.items()}
    w_out = readout["w"] if "w" in readout else readout["a"] @ readout["b"]
    return h @ w_out.T + readout["bias"]


def log_softmax(o):
    o = o - o.max(axis=-1, keepdims=True)
    return o - np.log(np.exp(o).sum(axis=-1, keepdims=True))


def token_log_probs(w_rec, w_in, leak, readout, sentence, f=np.tanh):
    """log p(w_{t+1} | w_1 .. w_t), (T - 1,), eq. 5."""
    log_probs = log_softmax(logits(readout, states(w_rec, w_in, leak, sentence[:-1], f)))
    return log_probs[np.arange(len(sentence) - 1), sentence[1:]]


def mean_nll_and_gradient(readout, h, targets):
    """Mean NLL over the predictions of features h (C, N), and its gradient in each array of the
    readout."""
    readout = {name: np.asarray(array, np.float64) for name, array in readout.items()}
    o = logits(readout, h)
    log_p = log_softmax(o)
    p, loss = np.exp(log_p), -log_p[np.arange(len(targets)), targets].mean()
    p[np.arange(len(targets)), targets] -= 1
    d = p / len(targets)  # dL/do: (C, V)
    gradient = {"bias": d.sum(0)}
    if "w" in readout:
        return loss, gradient | {"w": d.T @ h}
    return loss, gradient | {"a": d.T @ (h @ readout["b"].T), "b": (d @ readout["a"]).T @ h}


class AdamW:
    """torch.optim.AdamW on a dict of arrays, from its documentation."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.lr, self.betas, self.eps, self.weight_decay, self.t = lr, betas, eps, weight_decay, 0
        self.m = {name: np.zeros_like(array) for name, array in params.items()}
        self.v = {name: np.zeros_like(array) for name, array in params.items()}

    def step(self, params, gradient):
        self.t += 1
        b1, b2 = self.betas
        for name, g in gradient.items():
            params[name] = params[name] * (1 - self.lr * self.weight_decay)
            self.m[name] = b1 * self.m[name] + (1 - b1) * g
            self.v[name] = b2 * self.v[name] + (1 - b2) * g * g
            m, v = self.m[name] / (1 - b1**self.t), self.v[name] / (1 - b2**self.t)
            params[name] = params[name] - self.lr * m / (np.sqrt(v) + self.eps)
        return params


def dropped_states(w_rec, w_in, leak, sentence, keep, f=np.tanh):
    """h_1 .. h_T, (T, N), where W_in u is multiplied by dropout's mask keep (T, N) before W_rec h
    is added (Ueda et al. 2025b)."""
    w_rec, w_in, leak = (np.asarray(array, np.float64) for array in (w_rec, w_in, leak))
    h, found = np.zeros(len(leak)), []
    for token, mask in zip(sentence, np.asarray(keep, np.float64), strict=True):
        h = (1 - leak) * h + leak * f(w_rec @ h + mask * w_in[:, token])
        found.append(h)
    return np.array(found)


def lstm_states(embedding, w_ih, w_hh, b_ih, b_hh, sentence):
    """h_1 .. h_T, (T, H), of the LSTM in torch.nn.LSTM's documentation, h_0 = c_0 = 0."""
    return lstm_layers(embedding, w_ih, w_hh, b_ih, b_hh, sentence)["h"]


def lstm_layers(embedding, w_ih, w_hh, b_ih, b_hh, sentence):
    """The same, with c_1 .. c_T: {"h", "c"}."""
    embedding, w_ih, w_hh, b_ih, b_hh = (
        np.asarray(array, np.float64) for array in (embedding, w_ih, w_hh, b_ih, b_hh)
    )
    h, c, hs, cs = np.zeros(w_hh.shape[1]), np.zeros(w_hh.shape[1]), [], []
    for token in sentence:
        i, f, g, o = (w_ih @ embedding[token] + b_ih + w_hh @ h + b_hh).reshape(4, -1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        hs.append(h), cs.append(c)
    return {"h": np.array(hs), "c": np.array(cs)}


def driven_states(w_rec, leak, drive, rule="leaky_output", f=np.tanh, diffusion=0.0, start=0.0):
    """What a readout sees of one layer, (T, N), given W_in d(t), (T, N), and a state `start`
    before, of h.

    leaky_output: h' = (1 - a) h + a f(W_rec h + W_in d). leaky_membrane (Fujimaki 2026): x' = (1 -
    a) x + a (W_in d + W_rec r), r = f(x), of which r is seen. euler_state (Gallicchio 2024): h' = h
    + a f((W_rec - gamma I) h + W_in d), gamma the diffusion. residual_shift (Ceni and Gallicchio
    2024): h' = (1 - a) O h + a f(W_rec h + W_in d), O h the states moved on by one unit.
    """
    w_rec, leak, drive = (np.asarray(array, np.float64) for array in (w_rec, leak, drive))
    x, r, found = np.zeros(len(leak)), np.zeros(len(leak)) + start, []
    for driven in drive:
        if rule == "leaky_membrane":
            x = (1 - leak) * x + leak * (driven + w_rec @ r)
            r = f(x)
        elif rule == "euler_state":
            r = r + leak * f((w_rec - diffusion * np.eye(len(leak))) @ r + driven)
        elif rule == "residual_shift":
            # row i has its 1 in column i - 1
            cycle = np.eye(len(leak))[[len(leak) - 1, *range(len(leak) - 1)]]
            r = (1 - leak) * (cycle @ r) + leak * f(w_rec @ r + driven)
        else:
            r = (1 - leak) * r + leak * f(w_rec @ r + driven)
        found.append(r)
    return np.array(found)


def stacked_states(layers, d, rule="leaky_output", f=np.tanh, keep=1.0, diffusion=0.0):
    """The states of all layers side by side, (T, L N), for inputs d (T, D), a row one-hot or of an
    embedding.

    Args:
        layers: (W_rec, W_in, leak) of each; the first W_in is (N, D), the others read the states
            below, (N, N).
        keep: dropout's mask on W_in d of the first, (T, N).
    """
    below, found = np.asarray(d, np.float64), []
    for w_rec, w_in, leak in layers:
        drive = below @ np.asarray(w_in, np.float64).T * (keep if not found else 1)
        found.append(below := driven_states(w_rec, leak, drive, rule, f, diffusion))
    return np.concatenate(found, axis=1)
