"""The loss of an update and its gradient in all that is trained, as Updates makes them."""

from functools import partial

import jax
from flax import nnx

from esnlm.features.batching import pack_batch
from esnlm.machine.mesh import Placement
from esnlm.training import batches, end_to_end, update


def packed_update(texts):
    """An update of sentences, their packed steps, the rows of each, and the packed targets."""
    inputs = [text[:-1] for text in texts]
    # these matter to dropout
    sentences = batches.Sentences(inputs, [text[1:] for text in texts], corpus_positions=inputs)
    steps, rows = pack_batch(inputs, inputs)
    count = sentences.predictions()
    size = batches.bucket_size(count)
    return sentences, steps, rows, batches.pack_targets(sentences, rows, size, count)


def loss_and_gradient(model, steps, batch, key=None):
    """The loss in nats, and a tree of gradients like model.params; the model is one for a
    device."""
    graphdef, _, frozen = nnx.split(model, nnx.Param, ...)
    placement = Placement(None, 1, 1)
    program = partial(
        update.loss_and_gradient,
        forward=partial(end_to_end.forward, graphdef=graphdef, placement=placement),
        placement=placement,
        precision=model.precision,
        dropout_rate=model.output_dropout,
    )
    batch = batch._replace(inputs=steps, key=key)
    (loss, _), gradient = jax.jit(program)(model.params, frozen, batch)
    return loss, gradient


@jax.jit
def features_of(model, steps, key=None):
    """The features of packed steps, (T * B, F)."""
    return model(steps, key)
