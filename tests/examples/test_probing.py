"""The example that probes states: a small treebank, and states that hold the labels or do not."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from esnlm.base.errors import InputError
from examples import probing

TREEBANK = """# sent_id = 1
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdogs\tdog\tNOUN\tNNS\tNumber=Plur\t5\tnsubj\t_\t_
3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdo\tdo\tAUX\tVBP\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\tRB\t_\t5\tadvmod\t_\t_
5\tsleep\tsleep\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t5\tpunct\t_\t_

# sent_id = 2
1\tIt\tit\tPRON\tPRP\tNumber=Sing\t2\tnsubj\t_\t_
1.1\tis\t_\t_\t_\t_\t_\t_\t_\t_
2\tgoes\tgo\tVERB\tVBZ\t_\t0\troot\t_\tSpaceAfter=No
"""


@pytest.fixture
def table(tmp_path) -> pd.DataFrame:
    (tmp_path / "treebank.conllu").write_text(TREEBANK)
    return probing.read_treebank(str(tmp_path / "treebank.conllu"))


def test_words_and_their_spaces_are_read(table):
    assert table.form.tolist() == ["The", "dogs", "do", "n't", "sleep", ".", "It", "goes"]
    assert table.space.tolist() == [True, True, False, True, False, True, True, False]
    assert table.sentence.tolist() == [0] * 6 + [1] * 2


@pytest.mark.parametrize(
    "marks, expected", [((0, 0, 0), [1, 2, 3]), ((1, 0, 1), [1, 1, 2]), ((1, 1, 0), [1, 2, 2])]
)
def test_documents_begin_where_the_treebank_says(marks, expected, tmp_path):
    """Without a mark, each sentence is read alone."""
    word = "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_"
    blocks = ["# newdoc id = a\n" * mark + word for mark in marks]
    (tmp_path / "treebank.conllu").write_text("\n\n".join(blocks) + "\n")
    table = probing.read_treebank(str(tmp_path / "treebank.conllu"))
    assert table.document.tolist() == expected


def test_a_missing_and_an_empty_treebank_are_named(tmp_path):
    path = tmp_path / "treebank.conllu"
    with pytest.raises(InputError, match="treebank.conllu: cannot be read"):
        probing.read_treebank(str(path))
    path.touch()
    with pytest.raises(InputError, match="treebank.conllu: empty; give a CoNLL-U file"):
        probing.read_treebank(str(path))


@pytest.mark.parametrize("trained_on", ["sentences", "documents"])
def test_a_model_of_documents_reads_documents(trained_on, table):
    def word_states(words, space_after, **options):
        asked.append(
            {name: list(value) if name == "documents" else value for name, value in options.items()}
        )
        return SimpleNamespace(states=None)

    asked, chunk = [], 8 if trained_on == "documents" else None
    data = SimpleNamespace(document_chunk=chunk)
    run = SimpleNamespace(config=SimpleNamespace(data=data), word_states=word_states)
    probing.states(run, table, None)
    by_document = {"context": "document", "documents": [1, 2]}
    expected = {"layers": None, "progress": True} | (by_document if chunk else {})
    assert asked == [expected]


def test_labels_of_the_tasks(table):
    labels = {
        name: [None if pd.isna(value) else value for value in column]
        for name, column in probing.tasks(table, pd.Index(["the", "dogs", "it"])).items()
    }
    none = None
    assert labels["head"] == [none, none, none, none, none, 1, none, none]
    # the verb's subject stands at the word before the verb, if this is not the subject itself
    assert labels["subject"] == [none, none, none, "Plur", none, none, none, none]
    assert labels["word1"] == [none, "the", "dogs", none, none, none, none, "it"]
    assert labels["word4"] == [none, none, none, none, "the", "dogs", none, none]


def test_a_probe_decodes_what_the_states_hold():
    rng = np.random.default_rng(0)
    labels = pd.Series(rng.choice(["a", "b", "c"], 600))
    labels[rng.random(600) < 0.2] = None
    holds = pd.get_dummies(labels).to_numpy(float) @ rng.normal(size=(3, 8))
    states = {"holds": holds, "noise": rng.normal(size=(600, 8))}
    sentences, answers = pd.Series(range(400)) // 10, labels[400:].reset_index(drop=True)
    right = {
        name: probing.probe(x[:400], labels[:400], sentences, x[400:], answers)
        for name, x in states.items()
    }
    assert np.isnan(right["holds"]).tolist() == labels[400:].isna().tolist()
    assert np.nanmean(right["holds"]) == 1 and np.nanmean(right["noise"]) < 0.5


def test_intervals_resample_sentences():
    """Words of a sentence that are decoded together count as one observation."""
    sentences = pd.Series(np.repeat(range(40), 10))
    together = np.repeat(np.arange(40) % 2, 10).astype(float)
    apiece = np.tile([0.0, 1.0], 200)
    wide, narrow = (probing.accuracy(right, sentences) for right in (together, apiece))
    assert wide["accuracy"] == narrow["accuracy"] == 50 and wide["words"] == 400
    low, high = wide["interval"]
    # 1.96 standard errors of 40 fair coins are 15.5 points, within the error of 1,000 resamples
    assert high - low == pytest.approx(31, abs=4) and narrow["interval"] == [50, 50]


def test_random_labels_of_the_control_belong_to_word_forms():
    forms = pd.Series(["a", "b", "a", "c"] * 50)
    drawn = probing.control(forms, pd.Series(["X", "Y"]))
    assert drawn.groupby(forms).nunique().max() == 1 and set(drawn) <= {"X", "Y"}


def test_the_most_frequent_label_of_a_form_is_that_of_all_if_the_form_is_unknown():
    forms, labels = pd.Series(["a", "a", "a", "b", "c", "d"]), pd.Series(list("XYYZZZ"))
    chosen = probing.most_frequent(forms, labels, pd.Series(["a", "b", "new"], index=[7, 8, 9]))
    assert chosen.to_dict() == {7: "Y", 8: "Z", 9: "Z"}
