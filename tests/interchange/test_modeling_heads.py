"""An exported run in programs that repeat BOS, add up gradients, classify texts or tokens, and trace the model."""

import pytest

from esnlm.interchange.huggingface.export import export
from tests import peers
from tests.interchange.small_runs import SENTENCES, bpe, write_run
from tests.interchange.test_modeling_esnlm import MODELS

pytestmark = pytest.mark.skipif(
    not peers.installed(), reason="needs PyTorch and transformers: pip install -e '.[test,peers]'"
)
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

    model = getattr(transformers, kind).from_pretrained(folder, trust_remote_code=True, **settings).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_stands_before_bos_changes_nothing(name, folders):
    """BOS twice, as some programs put it, or another sentence and its end."""
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders(name))
    ids, before = (tokenizer(sentence, return_tensors="pt")["input_ids"] for sentence in SENTENCES[1:3])
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
def test_classes_are_learned_from_the_last_features(name, folders):
    """Padding changes nothing, and the new layer has a gradient."""
    import torch

    model, tokenizer = load("AutoModelForSequenceClassification", folders(name), num_labels=3)
    batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    found = model(**batch, labels=torch.arange(len(SENTENCES)) % 3)
    found.loss.backward()
    assert 0 < float(model.score.weight.detach().std()) < 0.1 and model.score.weight.grad.abs().sum() > 0
    alone = [model(**tokenizer(sentence, return_tensors="pt")).logits[0] for sentence in SENTENCES]
    torch.testing.assert_close(found.logits, torch.stack(alone), rtol=0, atol=1e-6)


def test_a_model_can_be_traced(folders):
    import torch

    model, tokenizer = load("AutoModelForCausalLM", folders("two layers"))
    ids = tokenizer(SENTENCES[1], return_tensors="pt")["input_ids"]
    traced = torch.export.export(model, (ids,), kwargs={"use_cache": False}, strict=False).module()
    with torch.no_grad():
        torch.testing.assert_close(traced(ids, use_cache=False).logits, model(ids).logits, rtol=0, atol=1e-5)
    assert isinstance(model.get_output_embeddings(), torch.nn.Linear)
