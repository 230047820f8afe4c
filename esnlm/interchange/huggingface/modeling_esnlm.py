"""Models of esnlm in PyTorch, for transformers with `trust_remote_code=True`.

`esnlm export` copies this file next to the weights. It only needs torch (2.5 or later) and
transformers (4.51 or later). esnlm does not import it.

    esn     h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)
            x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)    with leaky_membrane
    lstm    the equations of torch.nn.LSTM
    o       W_out h + b_out, or A B h + b_out, in all families

W_rec, W_in and the leaks of a reservoir are buffers, which no optimizer trains; W_in of an ESN+i is
a parameter. The token `<|endoftext|>`, which precedes every sentence in training, resets the state,
so text before it has no effect. A token whose `attention_mask` is 0 leaves the state unchanged. The
vocabulary has V tokens of text and a last token for padding. Its logit, PAD_LOGIT, makes its
probability 0; programs look up padding targets before they mask them.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

# transformers' name for the carried state: `cache` since 5.24, `past_key_values` before.
CACHE = next(
    name
    for name in ("cache", "past_key_values")
    if name in BaseModelOutputWithPast.__dataclass_fields__
)

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
}

# Finite, so that 0 times its log-probability is 0, and exact in every floating-point type.
PAD_LOGIT = -8192.0

State = tuple[torch.Tensor, ...]  # each (units, B)
# from a state and the vectors (B, K) of tokens to the next state
Step = Callable[[State, torch.Tensor], State]


class EsnlmConfig(PretrainedConfig):
    model_type = "esnlm"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]

    family: str = "esn"  # esn, lstm or deep_readout
    vocab_size: int = 258  # V + 1: the tokens of text, and the padding token, id V
    # F, the features of the readout: the states of all layers, or z of a deep readout
    hidden_size: int = 16
    num_hidden_layers: int = 1  # L
    readout_rank: int | None = None  # r of A B; None: a single W_out, or B belongs to the cell
    state_size: int = 16  # N, the units of one layer
    activation: str = "tanh"  # or relu
    update_rule: str = "leaky_output"  # or leaky_membrane
    decay: float = 1.0  # alpha
    # D, the width of a frozen embedding in front of W_in; None: W_in reads tokens
    embedding: int | None = None
    train_input: bool = False  # whether W_in of the first layer is a parameter
    # Nonzeros of each sparse matrix of the cell, by name; for W_in, nonzeros per token. Other
    # matrices are dense.
    nonzeros: dict | None = None
    tie_word_embeddings: bool = False
    use_cache: bool = True

    @property
    def num_tokens(self) -> int:  # V, without the padding token
        return self.vocab_size - 1

    def sparse(self, name: str) -> int | None:
        return (self.nonzeros or {}).get(name)


class CarriedState:
    """The state after the tokens read so far, which is a recurrent network's cache."""

    # transformers reads these two attributes of caches.
    is_compileable = False
    is_linear = (True,)

    def __init__(self, parts: State, length: int) -> None:
        # tensors (units, B), and the number of tokens read, padding included
        self.parts, self.length = (
            parts,
            length,
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.parts = tuple(part.index_select(1, beam_idx.to(part.device)) for part in self.parts)


class Linear(nn.Linear):
    """A trained layer within a cell, which computes in float32 or higher."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(
            x, in_float32(self.weight), None if self.bias is None else in_float32(self.bias)
        )


class Cell(nn.Module):
    """A recurrent cell: `sizes` of the parts of its state, and `stepper`, which returns a Step.

    The module `input` maps tokens (...) to vectors (..., K), the only input of a cell's next state.
    """

    def outputs(self, state: State) -> list[torch.Tensor]:
        """Returns the features of each layer, (N, B)."""
        return [state[0]]


class Matrix(nn.Module):
    """A frozen matrix (rows, columns): dense, or sparse by rows (CSR)."""

    def __init__(self, rows: int, columns: int, nonzeros: int | None) -> None:
        super().__init__()
        self.shape, self.is_sparse = (rows, columns), nonzeros is not None
        self.values = nn.Buffer(
            torch.zeros(rows, columns) if nonzeros is None else torch.zeros(nonzeros)
        )
        if nonzeros is not None:
            self.columns = nn.Buffer(torch.zeros(nonzeros, dtype=torch.int32))
            self.row_starts = nn.Buffer(torch.zeros(rows + 1, dtype=torch.int32))

    def operand(self) -> Any:
        """Returns a tensor that multiplies (columns, B)."""
        values = in_float32(self.values)
        if not self.is_sparse:
            return values
        # torch.export and torch.compile support dense matrices only
        if torch.compiler.is_compiling():
            places = torch.arange(self.shape[0], device=values.device)
            rows = torch.repeat_interleave(
                places, self.row_starts.diff().long(), output_size=len(values)
            )
            return values.new_zeros(self.shape).index_put((rows, self.columns.long()), values)
        with warnings.catch_warnings():  # PyTorch warns that its CSR matrices are in beta
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(self.row_starts, self.columns, values, self.shape)


class TokenInput(nn.Module):
    """A vector per token: rows of `weight` (V, N), or K values at `units` (V, K), N for none."""

    def __init__(
        self, size: int, tokens: int, connections: int | None = None, is_trained: bool = False
    ) -> None:
        super().__init__()
        self.size, self.is_sparse = size, connections is not None
        weight = torch.zeros(tokens, size if connections is None else connections)
        self.weight: torch.Tensor = nn.Parameter(weight) if is_trained else nn.Buffer(weight)
        if self.is_sparse:
            self.units = nn.Buffer(torch.zeros(weight.shape, dtype=torch.int32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = rows(self.weight, tokens)
        if not self.is_sparse:
            return values
        # the step needs (N, B)
        values, units = (
            values.movedim(-1, 0),
            rows(self.units, tokens).long().movedim(-1, 0),
        )
        return (
            values.new_zeros(self.size + 1, *tokens.shape)
            .scatter_add(0, units, values)[:-1]
            .movedim(0, -1)
        )


class Layer(nn.Module):
    """One layer of a reservoir, named `name`; the first one reads tokens or their embedding."""

    def __init__(self, config: EsnlmConfig, name: str, is_first: bool) -> None:
        super().__init__()
        size, width = config.state_size, config.embedding if is_first else config.state_size
        self.decay, self.f = config.decay, ACTIVATIONS[config.activation]
        self.leak_is_outside = config.update_rule == "leaky_output"  # or leaky_membrane
        self.recurrent = Matrix(size, size, config.sparse(f"{name}.recurrent"))
        self.leak = nn.Buffer(torch.zeros(size))
        nonzeros = config.sparse(f"{name}.input")
        if width is None:
            self.input: nn.Module = TokenInput(
                size, config.num_tokens, nonzeros, config.train_input
            )
        else:
            self.input = Matrix(size, width, nonzeros)

    def output(self, state: torch.Tensor) -> torch.Tensor:
        return state if self.leak_is_outside else self.f(state)

    # drive is W_rec h + W_in u, (N, B)
    def advance(self, state: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
        a = in_float32(self.leak)[:, None]
        return (1 - self.decay * a) * state + a * (self.f(drive) if self.leak_is_outside else drive)


class Reservoir(Cell):
    """The cell of the family esn, or a part `prefix` of another cell. Each layer has a state."""

    def __init__(self, config: EsnlmConfig, prefix: str = "") -> None:
        super().__init__()
        layers = range(config.num_hidden_layers)
        self.sizes = [config.state_size for _ in layers]
        self.layers: Any = nn.ModuleList(
            Layer(config, f"{prefix}layers.{i}", is_first=i == 0) for i in layers
        )
        if config.embedding is not None:
            self.embedding = TokenInput(config.embedding, config.num_tokens)

    @property
    def input(self) -> TokenInput:
        return getattr(self, "embedding", self.layers[0].input)

    def stepper(self) -> Step:
        layers = self.layers
        w_rec = [layer.recurrent.operand() for layer in layers]
        w_in: list[Any] = [
            None if isinstance(layer.input, TokenInput) else layer.input.operand()
            for layer in layers
        ]

        def step(state: State, vectors: torch.Tensor) -> State:
            drive = vectors.T if w_in[0] is None else w_in[0] @ vectors.T.contiguous()
            new = list[torch.Tensor]()
            for i, layer in enumerate(layers):
                drive = drive if i == 0 else w_in[i] @ layers[i - 1].output(new[-1])
                new.append(layer.advance(state[i], w_rec[i] @ layer.output(state[i]) + drive))
            return tuple(new)

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        return [layer.output(part) for layer, part in zip(self.layers, state, strict=True)]


class Lstm(Cell):
    """The cell of the family lstm. Its state is h and c, each (H, B)."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.sizes = [width, width]
        self.input = TokenInput(width, config.num_tokens, is_trained=True)
        self.ih, self.hh = (Linear(width, 4 * width) for _ in range(2))

    def stepper(self) -> Step:
        def step(state: State, vectors: torch.Tensor) -> State:
            h, c = state
            i, f, g, o = (self.ih(vectors) + self.hh(h.T)).T.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

        return step


class Readout(nn.Module):
    """From features (..., F) to logits (..., V)."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        rank = config.readout_rank
        self.b = nn.Identity() if rank is None else nn.Linear(config.hidden_size, rank, bias=False)
        self.a = nn.Linear(rank or config.hidden_size, config.num_tokens)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.a(self.b(features.to(self.a.weight.dtype)))


class EsnlmPreTrainedModel(PreTrainedModel):
    config: EsnlmConfig
    config_class: Any = EsnlmConfig
    base_model_prefix = "model"
    # the state cannot return to an earlier token, which assisted generation needs
    _is_stateful = True

    def _init_weights(self, module: nn.Module) -> None:
        """Initializes a classification head. All other weights come from an export."""
        if isinstance(module, nn.Linear) and module is getattr(self, "score", None):
            nn.init.normal_(module.weight, std=0.02)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Accepts only the current size, which training scripts request."""
        if new_num_tokens not in (None, self.config.vocab_size):
            raise ValueError(
                f"the vocabulary has {self.config.vocab_size} tokens and cannot be resized"
            )


class EsnlmModel(EsnlmPreTrainedModel):
    """The recurrent network. It also holds the readout, whose A a deep readout may use."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.readout = Readout(config)
        self.cell: Any = self._cell(config)
        self.post_init()

    def _cell(self, config: EsnlmConfig) -> nn.Module:
        return Lstm(config) if config.family == "lstm" else Reservoir(config)

    def get_input_embeddings(self) -> nn.Module:
        """Returns the module from tokens (...) to the network's input vectors (..., K)."""
        return self.cell.input

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        cache: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns `last_hidden_state` (B, T, F) of tokens (B, T), and the CarriedState as cache.

        `attention_mask` is (B, T), or longer (the last T values count), with 0 for padding on
        either side; or a causal mask (B, T, T). `past_key_values`, or `cache`, is the CarriedState
        returned by an earlier call. `hidden_states` has the output of each layer, and if there are
        several, also their concatenation. `inputs_embeds` (B, T, K) replace the vectors of the
        tokens; without `input_ids`, BOS is unknown and the state is never reset.
        """
        inputs: Any = inputs_embeds if input_ids is None else input_ids
        reads = self.mask_of(inputs, attention_mask)
        before = past_key_values if cache is None else cache
        if not isinstance(before, CarriedState):
            like = in_float32(self.readout.a.bias)
            before = CarriedState(
                tuple(like.new_zeros(size, len(reads)) for size in self.cell.sizes), 0
            )
        begins = (
            torch.zeros_like(reads) if input_ids is None else input_ids == self.config.bos_token_id
        )
        state, outputs, embed = before.parts, [], self.get_input_embeddings()
        # autocast would round the state at every step
        with torch.autocast(reads.device.type, enabled=False):
            step = self.cell.stepper()
            for t in range(reads.shape[1]):
                vectors = (
                    embed(inputs[:, t])
                    if inputs_embeds is None
                    else in_float32(inputs_embeds[:, t])
                )
                new = step(tuple(part.masked_fill(begins[:, t], 0) for part in state), vectors)
                state = tuple(
                    torch.where(reads[:, t], *each) for each in zip(new, state, strict=True)
                )
                outputs.append(self.cell.outputs(state))
        # (T, N, B)
        layers = [torch.stack(each).to(self.dtype) for each in zip(*outputs, strict=True)]
        layers = [each.permute(2, 0, 1).contiguous() for each in layers]  # (B, T, N)
        features = layers[0] if len(layers) == 1 else torch.cat(layers, -1)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden: Any = None
        if output_hidden_states:
            hidden = tuple(layers) if len(layers) == 1 else (*layers, features)
        carried: Any = CarriedState(state, before.length + reads.shape[1]) if use_cache else None
        return BaseModelOutputWithPast(
            last_hidden_state=features, hidden_states=hidden, **{CACHE: carried}
        )

    def mask_of(self, inputs: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Returns which tokens (B, T) or vectors (B, T, K) to read, (B, T) bool."""
        reads = inputs != self.config.num_tokens if inputs.dim() == 2 else inputs[..., 0].isfinite()
        if attention_mask is None:
            return reads
        # BabyLM's fine-tuning passes a mask (B, T, T) to causal models
        if attention_mask.dim() == 3:
            attention_mask = attention_mask.diagonal(dim1=1, dim2=2)
        return reads & attention_mask[:, -reads.shape[1] :].bool()


class EsnlmForCausalLM(EsnlmPreTrainedModel, GenerationMixin):
    """The network with its readout."""

    model_class = EsnlmModel

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.model.readout.a

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        labels: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        cache: Any = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the `logits` (B, T, V + 1), and with `labels` the mean loss in nats.

        It reads tokens as EsnlmModel does. The labels are the tokens again. Labels of -100,
        padding, and tokens whose `attention_mask`, or that of the token before, is 0 are not
        targets. With `num_items_in_batch`, from a Trainer, the loss is the sum divided by it, so
        that gradients add up over the parts of a batch. `logits_to_keep` limits the logits to the
        last tokens.
        """
        options = {"cache": cache, "inputs_embeds": inputs_embeds, "return_dict": True}
        read = self.model(input_ids, attention_mask, past_key_values, **kwargs | options)
        logits = self.model.readout(
            read.last_hidden_state[:, -logits_to_keep if labels is None else 0 :]
        )
        loss = None
        if labels is not None:
            mask = self.model.mask_of(
                inputs_embeds if input_ids is None else input_ids, attention_mask
            )
            # the first label is never a target
            pads = (labels == self.config.num_tokens) | ~mask | ~mask.roll(1, 1)
            loss = self.loss_function(
                logits=logits,
                labels=labels.masked_fill(pads, -100),
                vocab_size=self.config.num_tokens,
                num_items_in_batch=num_items_in_batch,
            )
        logits = functional.pad(logits, (0, 1), value=PAD_LOGIT)
        more = {"hidden_states": read.hidden_states, CACHE: read.get(CACHE)}
        return CausalLMOutputWithPast(loss=loss, logits=logits, **more)

    def prepare_inputs_for_generation(
        self, input_ids: Any, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        carried = kwargs.get(CACHE)
        unread = carried.length if isinstance(carried, CarriedState) else 0
        names = ("attention_mask", CACHE, "use_cache", "output_hidden_states", "logits_to_keep")
        passed = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        return {"input_ids": input_ids[:, unread:]} | passed

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False


class EsnlmForSequenceClassification(EsnlmPreTrainedModel):
    """The network with a linear layer that classifies a text from its last features."""

    model_class = EsnlmModel
    output_class: Any = SequenceClassifierOutput

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.num_labels: int = config.num_labels or 2
        self.model = self.model_class(config)
        self.score = nn.Linear(config.hidden_size, self.num_labels, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the `logits` of classes, and with `labels` the loss.

        It reads tokens as EsnlmModel does. Logits are (B, classes) for texts, with the loss of
        `config.problem_type`, and (B, T, classes) for tokens.
        """
        read = self.model(
            input_ids,
            attention_mask,
            inputs_embeds=inputs_embeds,
            output_hidden_states=output_hidden_states,
            use_cache=False,
            return_dict=True,
        )
        features = read.last_hidden_state  # padding leaves the state unchanged
        logits = self.score(
            features[:, -1] if self.output_class is SequenceClassifierOutput else features
        )
        loss = None
        if labels is not None:
            loss = self.loss_function(
                labels=labels, logits=logits, pooled_logits=logits, config=self.config, **kwargs
            )
        return self.output_class(loss=loss, logits=logits, hidden_states=read.hidden_states)


class EsnlmForTokenClassification(EsnlmForSequenceClassification):
    """The network with a linear layer that classifies each token from the features after it."""

    output_class = TokenClassifierOutput


def rows(table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the rows of tokens (...) in float32 or higher, and for padding the first row.

    As in nn.Embedding, an id outside the vocabulary is an error, on a GPU a failed assertion.
    Indexing with [] would count negative ids from the end.
    """
    return in_float32(functional.embedding(tokens.masked_fill(tokens == len(table), 0), table))


def in_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in the type of the recurrence, which is float32 or higher."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
