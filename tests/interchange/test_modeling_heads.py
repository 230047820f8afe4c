"""An exported run in programs that repeat BOS, add up gradients, classify texts or tokens, and
trace the model."""

import pytest

from esnlm.interchange.huggingface.export import export
from tests.interchange.small_runs import SENTENCES, bpe, write_run
from tests.interchange.test_modeling_esnlm import MODELS

pytestmark = pytest.mark.usefixtures("pytorch")
FAMILIES = ["two layers", "LSTM", "deep readout"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            path = tmp_path_factory.mktemp("heads")
            export(write_run(path / "run", MODELS[name], bpe()), path / "hf")
            made[name] = path / "hf"
        return made[name]

    return folder


def load(kind, folder, **settings):
    import transformers

    model = (
        getattr(transformers, kind)
        .from_pretrained(folder, trust_remote_code=True, **settings)
        .eval()
    )
    return model, transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_stands_before_bos_changes_nothing(name, folders):
    """BOS twice, as some programs put it, or another sentence and its end."""
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders(name))
    ids, before = (
        tokenizer(sentence, return_tensors="pt")["input_ids"] for sentence in SENTENCES[1:3]
    )
    with torch.no_grad():
        alone = model(ids).logits
        for first in (ids[:, :1], torch.cat([before, ids[:, :1]], 1)):
            assert torch.equal(model(torch.cat([first, ids], 1)).logits[:, first.shape[1] :], alone)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_add_up_over_the_parts_of_a_batch(name, folders):
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders(name))
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    count = (labels[:, 1:] != -100).sum()

    def gradients(parts):
        model.zero_grad()
        for rows in parts:
            ids, mask = (batch[key][rows] for key in ("input_ids", "attention_mask"))
            model(ids, mask, labels=labels[rows], num_items_in_batch=count).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    model(**batch, labels=labels).loss.backward()
    mean = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    one_by_one = gradients([[i] for i in range(len(SENTENCES))])
    for found in (gradients([slice(None)]), one_by_one):
        for expected, gradient in zip(mean, found, strict=True):
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("head", ["Sequence", "Token"])
def test_classes_are_learned_from_the_features(head, name, folders):
    """Of a text from its last ones, of a token from its own. Padding changes nothing, and the new
    layer has a gradient."""
    import torch

    model, tokenizer = load(f"AutoModelFor{head}Classification", folders(name), num_labels=3)
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    labels = torch.arange(batch["input_ids"].numel()).reshape(batch["input_ids"].shape) % 3
    found = model(**batch, labels=labels if head == "Token" else labels[:, 0])
    found.loss.backward()
    assert (
        0 < float(model.score.weight.detach().std()) < 0.1
        and model.score.weight.grad.abs().sum() > 0
    )
    for row, mask, sentence in zip(
        found.logits, batch["attention_mask"].bool(), SENTENCES, strict=True
    ):
        (alone,) = model(**tokenizer(sentence, return_tensors="pt")).logits
        torch.testing.assert_close(row[mask] if head == "Token" else row, alone, rtol=0, atol=1e-6)


def test_a_text_of_a_pair_is_not_forgotten_at_the_second_one(folders):
    """A second BOS would set the state back, and a classifier of pairs see one of them only."""
    import torch

    model, tokenizer = load("AutoModel", folders("LSTM"))
    first, other = (
        tokenizer(text, SENTENCES[0], return_tensors="pt")["input_ids"] for text in SENTENCES[1:3]
    )
    assert not torch.allclose(
        *(model(ids).last_hidden_state[0, -1] for ids in (first, other)), atol=1e-4
    )


@pytest.mark.parametrize(
    "name", [*FAMILIES, "ESN+i, dense, two layers", "dense embedding, two layers, membrane"]
)
def test_vectors_of_tokens_are_read_in_their_place(name, folders):
    """Logits and loss are those of the tokens, whose vectors have the gradient that finite
    differences have."""
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders(name))
    embed = model.get_input_embeddings()
    for side in ("right", "left"):
        batch = tokenizer(SENTENCES, return_tensors="pt", padding=True, padding_side=side)
        mask, labels = batch["attention_mask"], batch["input_ids"]
        vectors = embed(labels).detach()
        expected, found = (
            model(**batch, labels=labels),
            model(None, mask, inputs_embeds=vectors, labels=labels),
        )
        assert (
            torch.equal(found.logits[mask.bool()], expected.logits[mask.bool()])
            and found.loss == expected.loss
        )
    ids = tokenizer(SENTENCES[0], return_tensors="pt")["input_ids"]
    model, vectors = model.double(), embed(ids).double().detach().requires_grad_()

    def score(vectors):
        return model(inputs_embeds=vectors).logits[0, -1].log_softmax(-1)[0]

    (gradient,) = torch.autograd.grad(score(vectors), vectors)
    gradient = gradient[0, 2]
    way = torch.randn(
        len(gradient), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    # n-grams are looked up by the id, which is one of a deep readout's numbers
    way[gradient == 0] = 0
    moved = [vectors.detach().clone() for _ in range(2)]
    moved[0][0, 2] += 1e-5 * way
    moved[1][0, 2] -= 1e-5 * way
    with torch.no_grad():
        difference = (score(moved[0]) - score(moved[1])) / 2e-5
    assert gradient.abs().max() > 0
    torch.testing.assert_close(difference, gradient @ way, rtol=1e-5, atol=1e-9)


def test_without_tokens_nothing_sets_the_state_back(folders):
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders("LSTM"))
    ids = torch.cat(
        [tokenizer(text, return_tensors="pt")["input_ids"] for text in SENTENCES[:2]], 1
    )
    vectors = model.get_input_embeddings()(ids)
    both, alone = model(ids, inputs_embeds=vectors).logits, model(inputs_embeds=vectors).logits
    assert torch.equal(both, model(ids).logits) and not torch.allclose(alone, both, atol=1e-2)


@pytest.mark.parametrize(
    "name",
    [
        "LSTM",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("two layers", "deep readout")),
    ],
)
def test_a_model_can_be_traced(name, folders):
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders(name))
    ids = tokenizer(SENTENCES[1], return_tensors="pt")["input_ids"]
    traced = torch.export.export(model, (ids,), kwargs={"use_cache": False}, strict=False).module()
    with torch.no_grad():
        torch.testing.assert_close(
            traced(ids, use_cache=False).logits, model(ids).logits, rtol=0, atol=1e-5
        )
    assert isinstance(model.get_output_embeddings(), torch.nn.Linear)
