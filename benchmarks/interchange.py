"""One run in other programs, transformers and lm-evaluation-harness, against esnlm's results.

    python benchmarks/interchange.py --run RUN --data blimp/ [--pairs N] \\
        [--python inseq=ENVIRONMENT/bin/python]

Each program runs in its own process, in which esnlm cannot be imported. --python gives the
interpreter of a program that is installed in another environment. Writes interchange.json and .md
under --out.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np

import esnlm
from esnlm.interchange.huggingface.export import export

START = """
import json, sys, warnings
from importlib.metadata import version
warnings.simplefilter("ignore")
sys.modules["esnlm"] = None
import torch, transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
transformers.utils.logging.disable_progress_bar()
folder, texts, trust = sys.argv[1], json.load(open(sys.argv[2], encoding="utf-8")), {"trust_remote_code": True}
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, **trust).eval(), AutoTokenizer.from_pretrained(folder)
ids = [tokenizer(text, return_tensors="pt").input_ids for text in texts]
batch = tokenizer(texts[:32], return_tensors="pt", padding=True)
"""
TRAIN = """
def train(size, parts):
    model, told = AutoModelForCausalLM.from_pretrained(folder, **trust), dict(report_to=[], save_strategy="no", use_cpu=True)
    told |= dict(optim="sgd", learning_rate=0.01, max_grad_norm=0, disable_tqdm=True, output_dir=sys.argv[2] + ".out")
    told = transformers.TrainingArguments(**told, per_device_train_batch_size=size, gradient_accumulation_steps=parts)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    transformers.Trainer(model, told, train_dataset=[dict(tokenizer(text)) for text in texts[:32]], data_collator=collate).train()
    return [each.detach().flatten().tolist() for each in model.parameters()]
found, expected = train(1, 4), train(4, 1)
"""
LORA = """
import peft
lora = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear"))
adam, losses = torch.optim.AdamW([each for each in lora.parameters() if each.requires_grad], 1e-2), []
for _ in range(20):
    losses.append(lora(**batch, labels=batch.input_ids).loss)
    losses[-1].backward(), adam.step(), adam.zero_grad()
assert losses[-1] < losses[0], losses
expected = lora.eval()(**batch).logits[..., 0].tolist()
found = lora.merge_and_unload()(**batch).logits[..., 0].tolist()
"""
SALIENCY = """
import inseq
tool, found, expected = inseq.load_model(model, "saliency", tokenizer=tokenizer), [], []
for each, text in zip(ids[:8], texts):
    told = tool.attribute(tokenizer.decode(each[0, 1:3]), text, show_progress=False)[0]
    found.append(told.target_attributions[: each.shape[1] - 1, -1].norm(dim=-1).tolist())
    vectors = model.get_input_embeddings()(each[:, :-1]).detach().requires_grad_()
    model(inputs_embeds=vectors).logits[0, -1].softmax(-1)[each[0, -1]].backward()
    expected.append(vectors.grad[0].norm(dim=-1).tolist())
"""
TOKENS = (
    "found = [model(i).logits.log_softmax(-1)[0, :-1].gather(1, i[0, 1:, None])[:, 0].tolist() for"
    " i in ids]"
)
HARNESS = """
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
asked = [Instance("loglikelihood", {}, ("", text), 0) for text in texts]
found = [[p] for p, _ in HFLM(model, tokenizer=tokenizer).loglikelihood(asked, disable_tqdm=True)]
"""
MINICONS = """
from minicons.scorer import IncrementalLMScorer
found = [[p for _, p in own[1:]] for own in IncrementalLMScorer(model, tokenizer=tokenizer).token_score(texts)]
"""
SURPRISAL = """
from surprisal import AutoHuggingFaceModel
tool = AutoHuggingFaceModel.from_pretrained(folder, model_class="gpt", **trust)
tool.tokenizer.pad_token = "<|pad|>"
found = [[-float(s) for s in tool.surprise(text)[0].surprisals[1:]] for text in texts]
"""
SENTENCES = """
from sentence_transformers import SentenceTransformer, models
reads = models.Transformer(folder, model_kwargs=trust, config_kwargs=trust)
tool = SentenceTransformer(modules=[reads, models.Pooling(reads.get_word_embedding_dimension())])
found = tool.encode(texts).tolist()
"""
# By package: the quantity to compare, the results of esnlm (None: the program's own `expected`),
# and the program.
PROGRAMS = {
    "transformers": ("log p of each token", "tokens", TOKENS),
    "lm_eval": ("hf: log p of the text", "texts", HARNESS),
    "minicons": ("log p of each token", "tokens", MINICONS),
    "surprisal": ("log p of each token", "tokens", SURPRISAL),
    "sentence-transformers": ("mean of the states", "states", SENTENCES),
    "accelerate": ("Trainer: weights after 4 x 1 and 1 x 4 sentences", None, TRAIN),
    "peft": ("all-linear: logits, merged and not", None, LORA),
    "inseq": ("saliency, and PyTorch's own gradient", None, SALIENCY),
}


def main(arguments: list[str] | None = None) -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    parser.add_argument("--data", type=Path, required=True, help="folder of BLiMP's files")
    parser.add_argument(
        "--pairs",
        type=int,
        default=32,
        help="how many, of different paradigms (default: %(default)s)",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PACKAGE=FILE",
        help="a package's interpreter",
    )
    args = parser.parse_args(arguments)
    record, run = measure.begin() | {"rows": []}, esnlm.load(args.run)
    others = dict(each.split("=", 1) for each in args.python)
    files = measure.spread(sorted(args.data.glob("*.jsonl")), args.pairs)
    lines = [json.loads(file.read_text("utf-8").splitlines()[0]) for file in files]
    texts = [line[side] for line in lines for side in ("sentence_good", "sentence_bad")]
    own = {"tokens": [its[:-1] for its in run.token_log_probs(texts)]}  # without EOS
    own |= {
        "texts": [[its.sum()] for its in own["tokens"]],
        "states": [its[:-1].mean(0) for its in run.states(texts)],
    }
    with tempfile.TemporaryDirectory() as folder:
        export(run.directory, f"{folder}/hf")
        for package, (compared, known, program) in PROGRAMS.items():
            end = (
                f"\njson.dump([version({package!r}), found, {'0' if known else 'expected'}],"
                " open(sys.argv[2], 'w'))"
            )
            command = [
                others.get(package, sys.executable),
                "-c",
                START + program + end,
                f"{folder}/hf",
            ]
            began = time.perf_counter()
            file = Path(folder, "texts.json")
            file.write_text(json.dumps(texts), "utf-8")
            done = subprocess.run([*command, file], capture_output=True, text=True, check=False)
            row = {
                "tool": package,
                "compared": compared,
                "largest difference": " ".join(done.stderr.split())[-80:],
            }
            if done.returncode == 0:
                row["version"], found, expected = json.loads(file.read_text("utf-8"))
                pairs = list(zip(found, own[known] if known else expected, strict=True))
                row["largest difference"] = max(
                    float(np.abs(np.subtract(*pair)).max()) for pair in pairs
                )
                if known in ("tokens", "texts"):  # of minimal pairs
                    sums = np.array([[np.sum(its) for its in pair] for pair in pairs]).reshape(
                        -1, 2, 2
                    )
                    right = sums[:, 0] > sums[:, 1]  # (pairs, 2): the tool's answer and esnlm's
                    row["answers that differ"] = (
                        f"{(right[:, 0] != right[:, 1]).sum()} of {len(right)}"
                    )
            record["rows"].append(row | {"seconds": time.perf_counter() - began})
    titles = ["tool", "version", "compared", "largest difference", "answers that differ", "seconds"]
    page = measure.table(
        titles, ([row.get(title, "") for title in titles] for row in record["rows"])
    )
    measure.write(args.out, "interchange", "One run in the programs of others", page, record)
    return record


if __name__ == "__main__":
    measure.as_command(main)
