"""Makes runs available in lm-evaluation-harness (0.4.13) as the model `esnlm`.

Importing this module registers the model (docs/export.md).
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from esnlm.base.errors import InputError
from esnlm.evaluation.conventions import check_defined, sum_log_probs
from esnlm.evaluation.generation import generate_each
from esnlm.loaded_run import MAX_STATE_BYTES, Run, Step, load

# Task settings that would change the chosen tokens, with their neutral values. The second group is
# for sampling only.
NEUTRAL = {"num_beams": 1, "repetition_penalty": 1, "no_repeat_ngram_size": 0, "min_length": 0}
NEUTRAL_IN_SAMPLING = {"top_p": 1, "min_p": 0, "typical_p": 1}


@register_model("esnlm")
class EsnLM(TemplateLM):
    """A run as a model of the harness, for its three kinds of requests.

    Text is encoded as in the harness's model `hf` for GPT-2: an empty context becomes BOS, and
    others have no BOS.

    Args:
        run: a run directory, or the result of `esnlm.load`.
        step, untrained: the weights to load, as in `esnlm.load`.
        add_bos_token: whether BOS precedes all contexts, as it precedes all sentences in training.
        max_length: maximum number of tokens to read; longer contexts are cut at the beginning.
            None: as many as the model, or the memory for its states, allows.
        max_gen_toks: maximum number of generated tokens, unless the task sets it.
        seed: seed for tasks that sample.
        batch_size, max_batch_size, device: accepted for the harness, without effect: one call on
            JAX's device scores all.
    """

    def __init__(
        self,
        run: str | Path | Run | None = None,
        step: Step = None,
        untrained: bool = False,
        add_bos_token: bool = False,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        seed: int = 0,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        if run is None:
            raise InputError("no run; name one with --model_args run=DIR")
        self.run = run if isinstance(run, Run) else load(str(run), step=step, untrained=untrained)
        model = self.run.config.model
        longest = model.max_length or MAX_STATE_BYTES // (4 * model.feature_size) - 1
        self.max_length = max_length or longest
        self.add_bos_token, self.seed = bool(add_bos_token), int(seed)
        self.max_gen_toks = int(max_gen_toks)

    @property
    def eot_token_id(self) -> int:
        return self.run.tokenizer.bos

    @property
    def tokenizer_name(self) -> str:
        return f"{self.run.tokenizer.name}-{self.run.tokenizer.sha256[:8]}"

    def get_model_info(self) -> dict[str, Any]:
        return {
            "run": str(self.run.directory),
            "step": self.run.step,
            "tokenizer_sha256": self.run.tokenizer.sha256,
        }

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "{Role}:\\n{content}\\n\\n" if chat_template else None

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns a chat as plain text, since runs have no template."""
        turns = [f"{turn['role'].capitalize()}:\n{turn['content']}" for turn in chat_history]
        return "\n\n".join([*turns, "Assistant:\n"] if add_generation_prompt else turns)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Returns the ids of a text, with BOS if `add_special_tokens` (None: `add_bos_token`)."""
        bos = self.add_bos_token if add_special_tokens is None else add_special_tokens
        ids = self.run.tokenizer.encode(string)
        return [self.run.tokenizer.bos, *ids] if bos else ids

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Scores all requests in one call. Contexts that are too long are cut at the beginning."""
        sequences = []
        for (_, text), context, continuation in requests:
            if (size := len(continuation)) > self.max_length:
                raise InputError(
                    f"{text[:40]!r}... has {size} tokens, and this model reads at most"
                    f" {self.max_length}"
                )
            # The harness treats a context of white space as empty and gives it no tokens.
            ids = (context or [self.prefix_token_id]) + continuation
            sequences.append(np.array(ids[-self.max_length - 1 :], np.int32))
        scored = self.run.token_log_probs_of_ids(sequences, progress=True, with_likeliest=True)
        check_defined([values[:, 0] for values in scored], self.run.directory, self.run.step)
        results = []
        for (_, _, continuation), values in zip(requests, scored, strict=True):
            log_probs, is_likeliest = values[len(values) - len(continuation) :].T
            results.append((float(sum_log_probs([log_probs])[0]), bool(is_likeliest.all())))
        return results

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = True
    ) -> list[float]:
        """Returns log p(text | BOS) of each request in nats; long texts are split into windows."""
        windows = []  # (context, continuation)
        counts = []  # windows of each request
        for request in requests:
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            rolling = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            disjoint = [make_disjoint_window(window) for window in rolling]
            windows += disjoint
            counts.append(len(disjoint))
        sequences = [np.array(context + scored, np.int32) for context, scored in windows]
        log_probs = self.run.token_log_probs_of_ids(sequences, progress=True)
        check_defined(log_probs, self.run.directory, self.run.step)
        parts = iter(
            values[-len(scored) :] for values, (_, scored) in zip(log_probs, windows, strict=True)
        )
        texts = (np.concatenate([np.empty(0), *islice(parts, count)]) for count in counts)
        return sum_log_probs(texts).tolist()

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[str]:
        """Returns a continuation of each context, until EOS, a text of `until`, or `max_gen_toks`.

        If a task samples, the choices of a request depend on the seed and on the request's index.
        """
        return [self._continue(number, *request.args) for number, request in enumerate(requests)]

    def generation_settings(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns a task's `generation_kwargs` with defaults. Raises InputError for unsupported
        settings."""
        most = min(self.max_gen_toks, self.max_length - 1)
        settings: dict[str, Any] = dict(normalize_gen_kwargs(arguments, most))
        neutral = NEUTRAL | (NEUTRAL_IN_SAMPLING if settings.get("do_sample") else {})
        unknown = [name for name in neutral if settings.get(name) not in (None, neutral[name])]
        if unknown:
            raise InputError(
                f"a task generates with {', '.join(unknown)}, which esnlm does not support"
            )
        if settings.get("do_sample") and not settings.get("temperature"):
            raise InputError(
                "a task samples without a temperature; give one, such as --gen_kwargs temperature=1"
            )
        if (length := settings["max_gen_toks"]) >= self.max_length:
            raise InputError(
                f"max_gen_toks is {length}: it must be below the {self.max_length} tokens that this"
                " model reads"
            )
        return settings

    def _continue(self, number: int, context: str, arguments: dict[str, Any]) -> str:
        run, settings = self.run, self.generation_settings(arguments)
        length, stops = settings["max_gen_toks"], [stop for stop in settings["until"] if stop]
        ids = self.tok_encode(context) or [run.tokenizer.bos]
        prompt = np.array(ids[length - self.max_length :], np.int32)
        [chosen] = generate_each(
            run._token_reader(1, len(prompt) + length),
            [prompt],
            run.tokenizer.eos,
            length=length,
            temperature=settings.get("temperature", 0.0),
            top_k=settings.get("top_k") or None,
            seed=self.seed,
            numbers=[number],
            is_finished=lambda ids: any(stop in run.tokenizer.decode(ids) for stop in stops),
        )
        text = run.tokenizer.decode(chosen)
        return text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))]
