"""The same minimal pairs of one run in three programs: esnlm, lm-evaluation-harness, and minicons on the exported folder.

    python benchmarks/interchange.py --run RUN --data blimp/ [--limit PAIRS]

All three score a pair as the harness does (BOS, a space, the sentence; no EOS). Each is a process of its own, one after the
other, and its seconds are those of the whole process. minicons (extra `peers`) reads the folder that `esnlm export` wrote, in
a process in which esnlm cannot be imported. Writes interchange.json and interchange.md: scores, answers that differ, and
the largest difference of a log-probability. Exit status 1 says that an answer differs by more than rounding.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import numpy as np

ROOT = Path(__file__).parents[1]
ROUNDING = 1e-3  # nats; a sentence has some twenty float32 terms of about 10 nats, and PyTorch sums in another order

MINICONS = """
import json, sys
sys.modules["esnlm"] = None
import torch
from minicons.scorer import IncrementalLMScorer
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, pairs, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
scorer = IncrementalLMScorer(model, tokenizer=tokenizer)
lines = [json.loads(line) for line in open(pairs, encoding="utf-8")]
sentences = list({" " + line[side]: None for line in lines for side in ("sentence_good", "sentence_bad")})
sentences.sort(key=len)
score = {}
with torch.no_grad():
    for start in range(0, len(sentences), 64):
        some = sentences[start : start + 64]
        score |= dict(zip(some, scorer.sequence_score(some, reduction=lambda x: x.sum().item()), strict=True))
found = [[score[" " + line[side]] for side in ("sentence_good", "sentence_bad")] for line in lines]
json.dump(found, open(out, "w"))
"""


# A task of the harness on a file of pairs, which needs no network.
TASK = """
task: {uid}
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {file}}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
metric_list: [{{metric: acc}}]
"""


def timed(command: list[str]) -> float:
    """Runs a command and returns its seconds. Raises RuntimeError with its last words where it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr[-500:]}")
    return time.perf_counter() - began


def esnlm(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "esnlm", *arguments]


def of_harness(out: Path, paradigms: list[str]) -> np.ndarray:
    """Returns the log-probabilities that the harness has, (n, 2), in the order of esnlm's pairs."""
    found = []
    for uid in dict.fromkeys(paradigms):
        (file,) = out.glob(f"*/samples_{uid}_20*.jsonl")
        samples = sorted(map(json.loads, file.read_text().splitlines()), key=lambda sample: sample["doc_id"])
        found += [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples]
    return np.array(found)


def accuracy(scores: np.ndarray, paradigms: np.ndarray) -> float:
    """Returns the mean over paradigms of the share of pairs whose first sentence is at least as probable, in percent."""
    right = scores[:, 0] >= scores[:, 1]  # the harness takes the first of equals
    return float(np.mean([100 * right[paradigms == uid].mean() for uid in np.unique(paradigms)]))


def main() -> dict:
    parser = measure.arguments(__doc__)
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    parser.add_argument("--data", type=Path, required=True, help="folder of BLiMP's files")
    parser.add_argument("--limit", type=int, help="pairs of each paradigm (default: all)")
    args = parser.parse_args()
    record = measure.begin()
    run = str(args.run.resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "pairs"
        data.mkdir()
        for file in sorted(args.data.glob("*.jsonl")):
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)[: args.limit]
            (data / file.name).write_text("".join(lines), encoding="utf-8")
            (folder / f"{file.stem}.yaml").write_text(
                TASK.format(uid=file.stem, file=data / file.name), encoding="utf-8"
            )
        given = ["--run", run, "--data", str(data)]
        seconds = {
            "esnlm": timed(esnlm("blimp", *given, "--scoring", "lm-eval", "--out", str(folder / "ours.json"))),
            "lm-evaluation-harness": timed(
                esnlm(
                    "lm-eval",
                    *("--model_args", f"run={run}", "--include_path", str(folder), "--log_samples"),
                    *(
                        "--tasks",
                        ",".join(file.stem for file in sorted(data.iterdir())),
                        "--output_path",
                        str(folder / "harness"),
                    ),
                )
            ),
            "export": timed(esnlm("export", "--run", run, "--out", str(folder / "export"))),
        }
        pairs, out = folder / "ours.pairs.jsonl", folder / "minicons.json"
        seconds["minicons"] = timed([sys.executable, "-c", MINICONS, str(folder / "export"), str(pairs), str(out)])
        lines = [json.loads(line) for line in pairs.read_text().splitlines()]
        paradigms = np.array([line["UID"] for line in lines])
        scores = {
            "esnlm": np.array([[line["log_prob_good"], line["log_prob_bad"]] for line in lines]),
            "lm-evaluation-harness": of_harness(folder / "harness", list(paradigms)),
            "minicons": np.array(json.loads(out.read_text())),
        }
    ours = scores["esnlm"]
    record |= {"run": args.run.name, "pairs": len(ours), "paradigms": len(set(paradigms)), "rows": []}
    for program, found in scores.items():
        margin = np.abs(ours[:, 0] - ours[:, 1])
        differs = (found[:, 0] >= found[:, 1]) != (ours[:, 0] >= ours[:, 1])
        record["rows"].append(
            {
                "program": program,
                "accuracy": accuracy(found, paradigms),
                "answers that differ": int(differs.sum()),
                "largest margin of these, nats": float(margin[differs].max(initial=0)),
                "largest difference, nats": float(np.abs(found - ours).max()),
                "seconds": seconds[program],
            }
        )
    record["export_seconds"] = seconds["export"]
    measure.write(args.out, "interchange", "One run in three programs", markdown(record), record)
    worst = max(row["largest margin of these, nats"] for row in record["rows"])
    if worst > ROUNDING:
        raise SystemExit(1)
    return record


def markdown(record: dict) -> list[str]:
    """Returns the page."""
    rows = [
        [
            row["program"],
            f"{row['accuracy']:.2f}",
            f"{row['answers that differ']:,}",
            f"{row['largest margin of these, nats']:.1e}",
            f"{row['largest difference, nats']:.1e}",
            f"{row['seconds']:.0f}",
        ]
        for row in record["rows"]
    ]
    header = ["program", "BLiMP, %", "answers that differ from esnlm's", "largest margin of these, nats"]
    header += ["largest difference of a log-probability, nats", "seconds"]
    return [
        f"The run {record['run']}, {record['pairs']:,} pairs of {record['paradigms']} paradigms, scored as",
        "lm-evaluation-harness does (BOS, a space, the sentence; a tie is right). Seconds are those of a whole process;",
        f"`esnlm export`, which minicons reads, took {record['export_seconds']:.0f} s besides.",
        "",
        *measure.markdown_table(header, rows, align="lr"),
    ]


if __name__ == "__main__":
    measure.as_command(main)
