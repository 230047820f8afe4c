"""Every run of the papers' studies has the settings that its paper states, to the last one; only what a table varies varies."""

from pathlib import Path

import pytest

from esnlm import config_io
from esnlm.config import as_dict, flatten
from esnlm.studies import grid
from esnlm.studies.study import read_study

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"

# PyTorch's defaults of AdamW, batches of 32 sentences, one epoch, no schedule, no clipping (Ueda et al. 2025a, section 4.1; both papers).
TRAINING = {
    "kind": "adamw",
    "order": "shuffled",
    "on_nonfinite": "continue",
    "schedule_by": "updates",
    "stop_after": None,
    "optimizer": "adamw",
    "epochs": 1,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "weight_decay": 0.01,
    "schedule": "constant",
    "warmup_updates": 0,
    "clip_norm": None,
    "ema": None,
}
RESERVOIR = {
    "topology.kind": "erdos_renyi",
    "input_scale": 1.0,
    "input_weights": "random",
    "leak_spacing": "uniform",
    "update_rule": "leaky_output",
    "layers": 1,
    "embedding": None,
    "continuous": None,
}
SPARSE = RESERVOIR | {
    "state_size": 4096,
    "spectral_radius": 0.99,
    "mean_degree": 32,
    "connectivity": None,
    "input_connectivity": None,  # that of W_rec
    "leak_min": 0.0,
    "leak_max": 1.0,
    "activation": "tanh",
}
DENSE = RESERVOIR | {
    "state_size": 512,
    "spectral_radius": 0.993,
    "connectivity": 0.5,
    "input_connectivity": 1.0,
    "leak_min": 0.8,
    "leak_max": 0.8,
    "activation": "relu",
}
LSTM = {"family": "lstm", "width": 512, "dropout": 0.1}
GPT2 = {"family": "gpt2", "layers": 12, "heads": 12, "width": 768, "positions": 1024, "dropout": 0.1}


def esn(reservoir, **model):
    return {"family": "esn", "readout.scaling": "none", **model} | {
        f"reservoir.{key}": value for key, value in reservoir.items()
    }


SPARSE_ESN = esn(SPARSE) | {"readout.rank": 512, "dropout": 0.0, "train_input": False}
ESN, ESN_I = (esn(DENSE) | {"readout.rank": None, "dropout": 0.1, "train_input": trained} for trained in (False, True))
STATED = {
    "scale_table3": {"": SPARSE_ESN, "LSTM": LSTM, "GPT-2": GPT2},
    "connectivity_table4": {"": SPARSE_ESN},
    "leak_table5": {"": SPARSE_ESN},
    "dense_frozen_table1": {"ESN": ESN, "ESN+i": ESN_I, "LSTM": LSTM, "GPT-2": GPT2},
    "radius_frozen_table2": {"": ESN_I},
}


# Tables 3 to 5 are means of four runs (Ueda et al. 2025a); of tables 1 and 2 the paper does not say.
SEEDS = dict.fromkeys(("scale_table3", "connectivity_table4", "leak_table5"), (0, 1, 2, 3))
SEEDS |= dict.fromkeys(("dense_frozen_table1", "radius_frozen_table2"), (0,))


@pytest.mark.parametrize("name", STATED)
def test_a_study_has_the_papers_settings(name):
    file = STUDIES / f"{name}.yaml"
    its = grid.parse_grid(read_study(file), file)
    assert its.seeds == SEEDS[name]
    cells = {cell.name: cell for cell in its.cells}
    for run in grid.make_runs(its):
        settings, cell = flatten(as_dict(run.experiment)), cells[run.cell]
        stated = {f"training.{key}": value for key, value in TRAINING.items()}
        stated |= {f"model.{key}": value for key, value in STATED[name][cell.case].items()}
        stated |= cell.values
        assert {key: settings[key] for key in stated} == stated, run.cell


@pytest.mark.parametrize("file", ["studies/online_ppl_s3.yaml", "small_lm_reservoir/esn_membrane.yaml"])
def test_fujimaki_s_model_learns_by_the_delta_rule(file):
    """Slides, eq. 1 to 5: the leak is on the membrane potential, and y = W_out r learns online, without an intercept."""
    path = STUDIES.parent / file
    if path.parent == STUDIES:
        every = [run.experiment for run in grid.make_runs(grid.parse_grid(read_study(path), path))]
    else:
        every = [config_io.read(path)]
    for experiment in every:
        settings = flatten(as_dict(experiment))
        stated = {"training.kind": "lms", "training.intercept": False, "training.log_probs": "softmax"}
        stated |= {"model.reservoir.update_rule": "leaky_membrane", "model.reservoir.activation": "tanh"}
        stated |= {"model.reservoir.layers": 1, "model.readout.rank": None}
        assert {key: settings[key] for key in stated} == stated
        assert settings["model.reservoir.embedding"] in (32, 64, 128)


@pytest.mark.parametrize("name", STATED)
def test_a_study_for_two_cores_differs_in_scale_only(name):
    """Its cells have the paper's settings but for the size of the network, the text and what a search chose."""
    file = STUDIES / "two_cores" / f"{name}.yaml"
    its = grid.parse_grid(read_study(file), file)
    cells = {cell.name: cell for cell in its.cells}
    own = {"training.learning_rate", "model.reservoir.state_size"}
    for run in grid.make_runs(its):
        settings, cell = flatten(as_dict(run.experiment)), cells[run.cell]
        if cell.case == "GPT-2":
            own = own | {"model.layers", "model.heads", "model.width", "model.positions"}
        stated = {f"training.{key}": value for key, value in TRAINING.items()}
        stated |= {f"model.{key}": value for key, value in STATED[name][cell.case].items()}
        stated = {key: value for key, value in (stated | cell.values).items() if key not in own or key in cell.values}
        assert {key: settings[key] for key in stated} == stated, run.cell
