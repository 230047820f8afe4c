"""A run as a model of lm-evaluation-harness, under the name "esnlm". It needs neither PyTorch nor transformers.

The harness (0.4.13) finds models by a table of its own and has no entry point for others, so this module must be imported
before the name is known.

Example:
    import lm_eval
    from esnlm.interchange.lm_eval import EsnLM

    lm_eval.simple_evaluate(model=EsnLM("runs/first"), tasks=["blimp"])
    lm_eval.simple_evaluate(model="esnlm", model_args="run=runs/first,step=500", tasks=["lambada_openai"])
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from esnlm.errors import require
from esnlm.evaluation.generation import generate_each
from esnlm.evaluation.sequences import require_defined, sum_log_probs
from esnlm.loaded_run import MAX_STATE_BYTES, Run, Step, load

SLOTS = 64  # continuations that are generated side by side
SAMPLING = {"do_sample", "temperature", "top_k"}  # the settings of a choice that are known here
OF_SAMPLES = {"top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "seed"}  # greedy decoding is without them
OF_BEAMS = {"length_penalty", "early_stopping"}  # and one beam is without these
# Settings that are not known here, each with the value that asks for nothing.
NEUTRAL = dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "repetition_penalty", "top_p"), 1)
NEUTRAL |= dict.fromkeys(("min_p", "no_repeat_ngram_size", "presence_penalty", "frequency_penalty"), 0)
NEUTRAL |= dict.fromkeys(("min_length", "min_new_tokens"), 0)


@register_model("esnlm")
class EsnLM(TemplateLM):
    """A run that answers the three kinds of requests of the harness.

    Text is encoded as a GPT-2 of Hugging Face has it there: nothing is put before a context that is not empty, and an empty
    one is BOS.
    """

    def __init__(
        self,
        run: str | Path | Run,
        step: Step = None,
        untrained: bool = False,
        add_bos_token: bool = False,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        seed: int = 0,
        progress: bool = False,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        """Takes a run, or restores one from its directory.

        Args:
            run: the run directory, or what `esnlm.load` returned.
            step: the checkpoint of this step; None: the newest. Only with a directory, as is `untrained`.
            untrained: whether to take the model as it was before its first update.
            add_bos_token: whether BOS stands before every context, as it did before every sentence of the training text.
            max_length: tokens that the model reads at most, so that longer contexts lose their beginning; None: as many as
                the model or the memory for its states allows.
            max_gen_toks: tokens of a generated text at most, where a task does not say it.
            seed: of generation, where a task samples.
            progress: whether to show how far the scoring is, on stderr.
            batch_size, max_batch_size, device: what the harness passes to every model. They change nothing: all requests
                are scored in one call, on the device that JAX chose.

        Raises:
            InputError: the run cannot be restored, `max_length` is out of range, or a loaded run is given with `step` or
                `untrained`.
        """
        super().__init__()
        require(
            not isinstance(run, Run) or (step is None and not untrained),
            "step and untrained choose what is loaded: give them with a run directory, and not with a run that is loaded",
        )
        self.run = run if isinstance(run, Run) else load(run, step=step, untrained=untrained)
        model = self.run.config.model
        most = model.longest or MAX_STATE_BYTES // (4 * model.feature_size) - 1
        require(
            max_length is None or 1 <= max_length <= most,
            f"max_length is {max_length}: it must be at least 1 and at most {most}, which is what this model can read",
        )
        self.max_length = max_length or most
        self.add_bos_token, self.max_gen_toks = bool(add_bos_token), int(max_gen_toks)
        self.seed, self.progress = int(seed), progress

    @property
    def eot_token_id(self) -> int:
        """The id of `<|endoftext|>`, which is BOS and EOS."""
        return self.run.tokenizer.bos

    @property
    def tokenizer_name(self) -> str:
        """What tells this tokenizer from others in the harness's cache of requests."""
        return f"{self.run.tokenizer.name}-{self.run.tokenizer.sha256[:8]}"

    def get_model_info(self) -> dict[str, Any]:
        """Returns what the harness writes of the model into its results."""
        return {"run": str(self.run.directory), "step": self.run.step, "tokenizer_sha256": self.run.tokenizer.sha256}

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Returns the ids of a text, after BOS where `add_special_tokens` says so (None: where this object was told so)."""
        bos = self.add_bos_token if add_special_tokens is None else add_special_tokens
        return [self.run.tokenizer.bos] * bool(bos) + self.run.tokenizer.encode(string)

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Returns log p(continuation | context) in nats of each request, and whether it is what greedy decoding would give."""
        return super().loglikelihood(list(requests), disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Scores all requests in one call. A context that is too long loses its beginning."""
        sequences = []
        for (_, text), context, continuation in requests:
            # The harness takes a context of nothing but white space for an empty one, and gives it no tokens.
            context = context or [self.prefix_token_id]
            require(
                len(continuation) <= self.max_length,
                f"a continuation has {len(continuation)} tokens, and this model reads at most {self.max_length}: {text[:40]!r}...",
            )
            sequences.append(np.array((context + continuation)[-(self.max_length + 1) :], np.int32))
        scored = self.run.token_log_probs_of(sequences, progress=self.progress, with_likeliest=True)
        require_defined([found[:, 0] for found in scored], self.run.directory, self.run.step)
        tails = [found[len(found) - len(request[2]) :] for found, request in zip(scored, requests, strict=True)]
        sums = sum_log_probs(tail[:, 0] for tail in tails)
        return [(float(total), bool(tail[:, 1].all())) for total, tail in zip(sums, tails, strict=True)]

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[float]:
        """Returns log p(text | BOS) in nats of each request. A long text is cut into windows, each token scored once."""
        sequences, lengths, owners = [], [], []
        for number, request in enumerate(requests):
            windows = get_rolling_token_windows(
                self.tok_encode(request.args[0], add_special_tokens=False), self.prefix_token_id, self.max_length, 1
            )
            for context, continuation in map(make_disjoint_window, windows):
                sequences.append(np.array(context + continuation, np.int32))
                lengths.append(len(continuation))
                owners.append(number)
        scored = self.run.token_log_probs_of(sequences, progress=self.progress)
        require_defined(scored, self.run.directory, self.run.step)
        parts: list[list[np.ndarray]] = [[np.empty(0)] for _ in requests]
        for number, length, found in zip(owners, lengths, scored, strict=True):
            parts[number].append(found[len(found) - length :])
        return sum_log_probs(np.concatenate(part) for part in parts).tolist()

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[str]:
        """Returns a continuation of each context: up to EOS, to one of the texts `until`, or to `max_gen_toks` tokens.

        Where a task samples, the choices of a request depend on the seed and on its number among all requests.
        """
        found = [""] * len(requests)
        alike: dict[str, list[int]] = {}  # requests with the same settings are continued together
        for number, request in enumerate(requests):
            alike.setdefault(repr(request.args[1]), []).append(number)
        for numbers in alike.values():
            settings = self.generation_settings(requests[numbers[0]].args[1])
            contexts = {number: requests[number].args[0] for number in numbers}
            by_length = sorted(numbers, key=lambda number: len(contexts[number]))
            for first in range(0, len(by_length), SLOTS):
                some = by_length[first : first + SLOTS]
                texts = self._continue([contexts[n] for n in some], some, **settings)
                for number, text in zip(some, texts, strict=True):
                    found[number] = text
        return found

    def generation_settings(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns the settings of a generation, with what a task leaves open.

        Args:
            asked: the task's generation_kwargs.

        Raises:
            InputError: a run cannot generate so.
        """
        settings = dict(normalize_gen_kwargs(asked, min(self.max_gen_toks, self.max_length - 1)))
        most, samples = settings["max_gen_toks"], settings.get("do_sample")
        known = {"until", "max_gen_toks", "use_cache", "pad_token_id", *SAMPLING, *OF_BEAMS}
        known |= set() if samples else OF_SAMPLES
        unknown = sorted(name for name in settings.keys() - known if settings[name] not in (None, NEUTRAL.get(name)))
        line = f"a task {'samples' if samples else 'generates'} with {', '.join(unknown)}"
        require(not unknown, f"{line}: a run knows {', '.join(sorted(SAMPLING))} only")
        if samples:
            require(
                bool(settings.get("temperature")),
                "a task samples without a temperature: a run needs one above 0 for it",
            )
        require(
            most < self.max_length,
            f"max_gen_toks is {most}: it must be below the {self.max_length} tokens that this model reads",
        )
        return settings

    def _continue(
        self, contexts: list[str], numbers: list[int], until: list[str], max_gen_toks: int, **sampling: Any
    ) -> list[str]:
        """Continues contexts that have the same settings. `numbers` are those of their requests."""
        run, temperature, top_k = self.run, sampling.get("temperature", 0.0), sampling.get("top_k") or None
        stops = [stop for stop in handle_stop_sequences(list(until), None) if stop]
        prompts = [
            np.array((self.tok_encode(context) or [run.tokenizer.bos])[-(self.max_length - max_gen_toks) :], np.int32)
            for context in contexts
        ]
        compute = run.config.compute
        longest = max(map(len, prompts)) + max_gen_toks
        ids = generate_each(
            run._ready.reader(len(prompts), longest),
            run._readout_here,
            prompts,
            run.tokenizer.eos,
            length=max_gen_toks,
            temperature=temperature,
            top_k=top_k,
            seed=self.seed,
            numbers=numbers,
            precision=compute.precision,
            is_finished=lambda chosen: any(stop in run.tokenizer.decode(chosen) for stop in stops),
        )
        return [_cut(run.tokenizer.decode(chosen), stops) for chosen in ids]


def _cut(text: str, stops: list[str]) -> str:
    """Returns a text up to the first of the texts that end it."""
    return text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))]
