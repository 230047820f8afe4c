"""A counted bigram model under the logits, and how training leaves out the very token that it predicts [ours].

    o = W_out h + b_out + log p_WB( . | v),   p_WB(w | v) = (c(v, w) + t(v) p_1(w)) / (c(v) + t(v))

v is the last token, c counts pairs, t(v) is how many different tokens follow v, and p_1 a unigram model (Witten and Bell 1991).

Predicted from all pairs, training would learn to trust counts of 1, which say nothing of new text. So if w follows v in the training
text, its own count is c(v, w) - 1, as in the leaving-one-out of Ney, Essen and Kneser 1994. All else stays: t and p_1 still know the
token. If a target is nearly sure, two large numbers of the gradient nearly cancel; in bf16 it is less exact.
"""

import jax
import jax.numpy as jnp


def held_out(prior: dict, log_p: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
    """Returns what leaving out one pair adds to the logit of its second token, log (c - 1 + t p_1) - log (c + t p_1).

    Args:
        prior: "table" of log p_WB (V, V), "types" t (V,), "total" c + t (V,) and "unigram" p_1 (V,), all float32.
        log_p: log p_WB(w | v) in nats, (P,) float32.
        v, w: the tokens, (P,) int32.

    Returns:
        A difference in nats for each pair, (P,) float32; 0 for a pair that was not counted.
    """
    backed_off = prior["types"][v] * prior["unigram"][w]  # t p_1
    # Rounding makes it exact below some 100,000. Above that, 1 is little.
    count = jnp.round(jnp.exp(log_p) * prior["total"][v] - backed_off)
    return jnp.where(count >= 1, jnp.log(count - 1 + backed_off) - jnp.log(count + backed_off), 0)
