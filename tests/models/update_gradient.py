"""The loss of an update and its gradient in all that is trained, as EndToEndUpdates makes them."""

from functools import partial

import jax
from flax import nnx

from esnlm.training import end_to_end


def loss_and_gradient(model, batch, packed, key=None):
    """The loss in nats, and a tree of gradients like model.params; the model is one for a device."""
    graphdef, _, frozen = nnx.split(model, nnx.Param, ...)
    return jax.jit(partial(end_to_end.loss_and_gradient, graphdef))(frozen, model.params, batch, packed, key)[:2]


@jax.jit
def features_of(model, batch, key=None):
    """The features of a packed batch, (T * B, F)."""
    return model(batch, key)
