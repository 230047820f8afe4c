"""The loss of an update and its gradient in all that is trained, as EndToEndUpdates makes them."""

from functools import partial

import jax
from flax import nnx

from esnlm.features.layout import pack_batch
from esnlm.training import batches, end_to_end


def packed_update(texts):
    """An update of sentences, their packed batch, the rows of each, and the packed targets."""
    inputs = [text[:-1] for text in texts]
    # these matter to dropout
    update = batches.Sentences(inputs, [text[1:] for text in texts], corpus_positions=inputs)
    batch, rows = pack_batch(inputs, inputs)
    count = update.predictions()
    return (
        update,
        batch,
        rows,
        batches.pack_targets(update, rows, batches.bucket_size(count), count),
    )


def loss_and_gradient(model, batch, packed, key=None):
    """The loss in nats, and a tree of gradients like model.params; the model is one for a
    device."""
    graphdef, _, frozen = nnx.split(model, nnx.Param, ...)
    return jax.jit(partial(end_to_end.loss_and_gradient, graphdef))(
        frozen, model.params, batch, packed, key
    )[:2]


@jax.jit
def features_of(model, batch, key=None):
    """The features of a packed batch, (T * B, F)."""
    return model(batch, key)
