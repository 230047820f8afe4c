"""A counted bigram model added to the logits; in training each predicted token is left out of its
counts [ours].

    o = W_out h + b_out + log p_WB( . | v),   p_WB(w | v) = (c(v, w) + t(v) p_1(w)) / (c(v) + t(v))

v is the last token, c counts pairs, t(v) distinct tokens follow v, and p_1 is a unigram model
(Witten and Bell 1991).

With counts of all pairs, training would learn to trust counts of 1, which do not generalise. So to
predict w after v in the training text, c(v, w) is reduced by 1, as in the leaving-one-out of Ney,
Essen and Kneser 1994; t and p_1 stay. For a target with a probability near 1, two large terms of
the gradient nearly cancel, which makes it less exact in bf16.
"""

import jax
import jax.numpy as jnp


def held_out(prior: dict, log_p: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
    """Returns the change of a token's logit if its pair is left out of the counts.

    It is log (c - 1 + t p_1) - log (c + t p_1).

    Args:
        prior: "table" of log p_WB (V, V), "types" t (V,), "total" c + t (V,) and "unigram" p_1
            (V,), all float32.
        log_p: log p_WB(w | v) in nats, (P,) float32.
        v, w: the tokens, (P,) int32.

    Returns:
        The difference in nats for each pair, (P,) float32; 0 for a pair that was not counted.
    """
    backed_off = prior["types"][v] * prior["unigram"][w]  # t p_1
    # Rounding makes the count exact below about 100,000; above that, a change of 1 is negligible.
    count = jnp.round(jnp.exp(log_p) * prior["total"][v] - backed_off)
    return jnp.where(count >= 1, jnp.log(count - 1 + backed_off) - jnp.log(count + backed_off), 0)
