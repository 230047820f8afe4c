"""Models of esnlm in PyTorch, as transformers loads them with `trust_remote_code=True`.

`esnlm export` puts this file beside the weights that it writes. It needs torch and transformers (4.51 or later) and
nothing else. Nothing in esnlm imports it.

    esn     h' = (1 - alpha a) * h + a * f(W_rec h + W_in u)             the state of a reservoir, of one layer or several
            x' = (1 - alpha a) * x + a * (W_rec r + W_in u), r = f(x)    the same by the update rule leaky_membrane
    jaeger  an esn that its own prediction is fed back to
    lstm    the equations of torch.nn.LSTM
    o = W_out h + b_out, or o = A B h + b_out                            the readout of all of them

W_rec, W_in and the leaks of a reservoir are buffers: they are saved with the model and no optimizer trains them. W_in of an
ESN+i is a parameter. Padding on either side changes no number: where `attention_mask` is 0 the state stays as it was.

The vocabulary of a model is that of its tokenizer: V tokens that text is made of, and after them the one that pads. That one has a
logit too, PAD_LOGIT, with which its probability is 0: programs look targets up that pad, before they leave them out.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

# What transformers calls that which a model has read so far: since 5.24 `cache`, `past_key_values` before.
CACHE = next(name for name in ("cache", "past_key_values") if name in BaseModelOutputWithPast.__dataclass_fields__)

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}

# It is finite, so that 0 times its log-probability is 0, and it is the same number in every floating-point type.
PAD_LOGIT = -8192.0

State = tuple[torch.Tensor, ...]  # each (units, B)
Step = Callable[[State, torch.Tensor], State]  # from a state and tokens (B,) to the next state


class EsnlmConfig(PretrainedConfig):
    """What the weights leave open.

    Args:
        family: esn, jaeger, lstm or deep_readout.
        vocab_size: V + 1: the tokens that text is made of, and the token that pads, which is id V.
        hidden_size: F, the features that the readout sees: the states of all layers, side by side, or z of a deep readout.
        num_hidden_layers: L.
        readout_rank: r of A B; None: W_out is one matrix.
        state_size: N, the units of one layer.
        activation: tanh or relu.
        update_rule: leaky_output or leaky_membrane.
        decay: alpha.
        embedding: D, the width of a frozen embedding in front of W_in; None: W_in reads tokens.
        train_input: whether W_in of the first layer is a parameter.
        token_connections: K, the places for connections of a token in W_in of the first layer; None: W_in is dense.
        recurrent_nonzeros: those of W_rec of each layer; None where it is dense.
        input_nonzeros: those of W_in of each layer that reads no tokens; None where it is dense, and for tokens.
        feedback_nonzeros: those of W_back of jaeger; None where it is dense.
    """

    model_type = "esnlm"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]

    def __init__(
        self,
        family: str = "esn",
        vocab_size: int = 258,
        hidden_size: int = 16,
        num_hidden_layers: int = 1,
        readout_rank: int | None = None,
        state_size: int = 16,
        activation: str = "tanh",
        update_rule: str = "leaky_output",
        decay: float = 1.0,
        embedding: int | None = None,
        train_input: bool = False,
        token_connections: int | None = None,
        recurrent_nonzeros: list[int | None] | None = None,
        input_nonzeros: list[int | None] | None = None,
        feedback_nonzeros: int | None = None,
        use_cache: bool = True,
        **others: Any,
    ) -> None:
        self.family = family
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.readout_rank = readout_rank
        self.state_size = state_size
        self.activation = activation
        self.update_rule = update_rule
        self.decay = decay
        self.embedding = embedding
        self.train_input = train_input
        self.token_connections = token_connections
        self.recurrent_nonzeros = recurrent_nonzeros or [None] * num_hidden_layers
        self.input_nonzeros = input_nonzeros or [None] * num_hidden_layers
        self.feedback_nonzeros = feedback_nonzeros
        self.use_cache = use_cache
        super().__init__(**{"tie_word_embeddings": False, **others})

    @property
    def num_tokens(self) -> int:
        """V, without the token that pads."""
        return self.vocab_size - 1


class CarriedState:
    """What the model has read so far: the cache of a recurrent network. Its size does not grow.

    Args:
        parts: tensors (units, B).
        length: how many tokens were read, those that pad among them.
    """

    # transformers asks its caches for these two. This one holds no keys of earlier tokens: only those that follow are to be read.
    is_compileable = False
    is_linear = (True,)

    def __init__(self, parts: State, length: int) -> None:
        self.parts, self.length = parts, length

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Takes the states of these columns, for beam search."""
        self.parts = tuple(part.index_select(1, beam_idx.to(part.device)) for part in self.parts)


class Matrix(nn.Module):
    """A frozen matrix (rows, columns): dense, or the nonzeros of its rows, one row after another (CSR)."""

    values: torch.Tensor
    columns: torch.Tensor
    row_starts: torch.Tensor

    def __init__(self, rows: int, columns: int, nonzeros: int | None) -> None:
        super().__init__()
        self.shape = (rows, columns)
        self.is_sparse = nonzeros is not None
        if nonzeros is None:
            self.register_buffer("values", torch.zeros(rows, columns))
        else:
            self.register_buffer("values", torch.zeros(nonzeros))
            self.register_buffer("columns", torch.zeros(nonzeros, dtype=torch.int32))
            self.register_buffer("row_starts", torch.zeros(rows + 1, dtype=torch.int32))

    def operand(self) -> Any:
        """Returns what multiplies (columns, B)."""
        values = in_float32(self.values)
        if not self.is_sparse:
            return values
        with warnings.catch_warnings():  # PyTorch calls its sparse matrices by rows a beta version
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(self.row_starts, self.columns, values, self.shape)


class TokenInput(nn.Module):
    """W_in (N, V), by its columns, one a token.

    `values` (V, K) are the connections of a token and `units` (V, K) the units that they reach, N where there is none.
    Where W_in is dense, `values` is its transpose.
    """

    values: torch.Tensor
    units: torch.Tensor

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        self.state_size, connections = config.state_size, config.token_connections
        values = torch.zeros(config.num_tokens, config.state_size if connections is None else connections)
        if config.train_input:
            self.values = nn.Parameter(values)
        else:
            self.register_buffer("values", values)
        self.is_sparse = connections is not None
        if self.is_sparse:
            self.register_buffer("units", torch.zeros(values.shape, dtype=torch.int32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns W_in u, (N, B), of tokens (B,)."""
        values = in_float32(self.values[tokens]).T  # (K, B)
        if not self.is_sparse:
            return values
        units = self.units[tokens].long().T  # (K, B)
        return values.new_zeros(self.state_size + 1, len(tokens)).scatter_add(0, units, values)[:-1]


class Layer(nn.Module):
    """One layer of a reservoir."""

    leak: torch.Tensor

    def __init__(self, config: EsnlmConfig, number: int) -> None:
        super().__init__()
        size = config.state_size
        self.decay, self.f = config.decay, ACTIVATIONS[config.activation]
        self.leak_is_outside = {"leaky_output": True, "leaky_membrane": False}[config.update_rule]
        self.recurrent = Matrix(size, size, config.recurrent_nonzeros[number])
        self.register_buffer("leak", torch.zeros(size))
        if number == 0 and config.embedding is None:
            self.input: nn.Module = TokenInput(config)
        else:
            width = config.embedding if number == 0 and config.embedding else size
            self.input = Matrix(size, width, config.input_nonzeros[number])

    def output(self, state: torch.Tensor) -> torch.Tensor:
        """Returns what feeds back, and what the readout and the layer above see, (N, B)."""
        return state if self.leak_is_outside else self.f(state)

    def advance(self, state: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
        """Returns the new state, given W_rec h + W_in u, all (N, B)."""
        a = in_float32(self.leak)[:, None]
        return (1 - self.decay * a) * state + a * (self.f(drive) if self.leak_is_outside else drive)


class Reservoir(nn.Module):
    """The cell of the family esn. Its state has one part a layer."""

    embedding: torch.Tensor

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        self.sizes = [config.state_size] * config.num_hidden_layers
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.has_embedding = config.embedding is not None
        if config.embedding is not None:
            self.register_buffer("embedding", torch.zeros(config.num_tokens, config.embedding))

    def stepper(self) -> Step:
        """Returns the function that advances a state by a token."""
        advance, reads = self.advancer(), self.reader()
        return lambda state, tokens: advance(state, reads(tokens))

    def reader(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Returns the function from tokens (B,) to W_in u, (N, B)."""
        first: Any = self.layers[0].input
        if not self.has_embedding:
            return first
        w_in, embedding = first.operand(), in_float32(self.embedding)
        return lambda tokens: w_in @ embedding[tokens].T.contiguous()

    def advancer(self) -> Callable[[State, torch.Tensor], State]:
        """Returns the function that advances a state by W_in u."""
        layers: Any = self.layers
        w_rec = [layer.recurrent.operand() for layer in layers]
        w_in = [None, *(layer.input.operand() for layer in layers[1:])]

        def advance(state: State, x: torch.Tensor) -> State:
            new: list[torch.Tensor] = []
            for i, layer in enumerate(layers):
                below = x if i == 0 else w_in[i] @ layers[i - 1].output(new[-1])
                new.append(layer.advance(state[i], w_rec[i] @ layer.output(state[i]) + below))
            return tuple(new)

        return advance

    def outputs(self, state: State) -> list[torch.Tensor]:
        """Returns what the readout sees of each layer, (N, B)."""
        layers: Any = self.layers
        return [layer.output(part) for layer, part in zip(layers, state, strict=True)]


class Jaeger(nn.Module):
    """The cell of the family jaeger: a reservoir, its own prediction p, and z = B h + B_u u + B_y p.

    The state has the parts of the reservoir, z (r, B), and whether there was a prediction (1, B). No gradient flows through
    time.
    """

    def __init__(self, config: EsnlmConfig, readout: nn.Module) -> None:
        super().__init__()
        rank = config.hidden_size
        self.reservoir = Reservoir(config)
        self.sizes = [*self.reservoir.sizes, rank, 1]
        self.feedback = Matrix(config.state_size, config.num_tokens, config.feedback_nonzeros)
        self.b = nn.Parameter(torch.zeros(rank, sum(self.reservoir.sizes)))
        self.b_u = nn.Parameter(torch.zeros(config.num_tokens, rank))  # transposed
        self.b_y = nn.Parameter(torch.zeros(rank, config.num_tokens))
        self.last_layer = [readout]  # in a list, so that it is a module of the model only

    def stepper(self) -> Step:
        advance, reads, w_back = self.reservoir.advancer(), self.reservoir.reader(), self.feedback.operand()
        b, b_u, b_y = (in_float32(each) for each in (self.b, self.b_u, self.b_y))
        (readout,) = self.last_layer

        def step(state: State, tokens: torch.Tensor) -> State:
            *below, z, predicted = (part.detach() for part in state)
            with torch.no_grad():
                p = torch.softmax(in_float32(readout(z.T)), -1).T * predicted  # (V, B)
                new = advance(tuple(below), reads(tokens) + w_back @ p.contiguous())
            z = b @ torch.cat(self.reservoir.outputs(new)) + b_u[tokens].T + b_y @ p
            return (*new, z, torch.ones_like(predicted))

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        return [state[-2]]


class Lstm(nn.Module):
    """The cell of the family lstm. Its state is h and c, each (H, B)."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.sizes = [width, width]
        self.embedding = nn.Parameter(torch.zeros(config.num_tokens, width))
        self.w_ih, self.w_hh = (nn.Parameter(torch.zeros(4 * width, width)) for _ in range(2))
        self.b_ih, self.b_hh = (nn.Parameter(torch.zeros(4 * width)) for _ in range(2))

    def stepper(self) -> Step:
        w_ih, w_hh = in_float32(self.w_ih), in_float32(self.w_hh)
        bias = (in_float32(self.b_ih) + in_float32(self.b_hh))[:, None]

        def step(state: State, tokens: torch.Tensor) -> State:
            h, c = state
            gates = w_ih @ in_float32(self.embedding[tokens]).T + w_hh @ h + bias
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

        return step

    def outputs(self, state: State) -> list[torch.Tensor]:
        return [state[0]]


class Readout(nn.Module):
    """From features (..., F) to logits (..., V)."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__()
        # The family jaeger has its own B, and its features are what A sees.
        rank = None if config.family == "jaeger" else config.readout_rank
        self.a = nn.Parameter(torch.zeros(config.num_tokens, rank or config.hidden_size))
        self.b = None if rank is None else nn.Parameter(torch.zeros(rank, config.hidden_size))
        self.bias = nn.Parameter(torch.zeros(config.num_tokens))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        features = features.to(self.a.dtype)
        if self.b is not None:
            features = functional.linear(features, self.b)
        return functional.linear(features, self.a, self.bias)


class EsnlmPreTrainedModel(PreTrainedModel):
    config: EsnlmConfig
    config_class: Any = EsnlmConfig
    base_model_prefix = "model"
    _is_stateful = True  # the state cannot go back to an earlier token, as assisted generation would need

    def _init_weights(self, module: nn.Module) -> None:
        """Leaves the weights as they are: they come from an export."""

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> Any:
        """Takes the size that the vocabulary has, which training scripts ask for, and changes and returns nothing.

        Raises:
            ValueError: another size is asked for.
        """
        size = self.config.vocab_size
        asked = size if new_num_tokens is None else new_num_tokens
        if asked != size or size % (pad_to_multiple_of or 1):
            multiple = f", to be padded to a multiple of {pad_to_multiple_of}" if pad_to_multiple_of else ""
            raise ValueError(
                f"{asked} tokens are asked for{multiple}: this model has {size}, those of its own tokenizer, and cannot have"
                " others; add no token to the tokenizer"
            )


class EsnlmModel(EsnlmPreTrainedModel):
    """The recurrent network. It holds the readout too, which the family jaeger needs to go on."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.readout = Readout(config)
        self.cell: Any = self._cell(config)
        self.post_init()

    def _cell(self, config: EsnlmConfig) -> nn.Module:
        match config.family:
            case "esn":
                return Reservoir(config)
            case "jaeger":
                return Jaeger(config, self.readout)
            case "lstm":
                return Lstm(config)
        raise ValueError(f"family is {config.family!r}: this file knows esn, jaeger and lstm")

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        cache: Any = None,
    ) -> Any:
        """Reads tokens.

        Args:
            input_ids: (B, T), T at least 1; those that follow what `past_key_values` has read.
            attention_mask: (B, T) or longer, of which the last T count: 0 where a token pads, on either side. A mask (B, T, T) is
                taken where it says the same, each token seeing those up to it.
            past_key_values: the CarriedState that an earlier call returned; None: the state before any token.
            use_cache: whether to return a CarriedState.
            output_hidden_states: whether to return the output of each layer, and all of them side by side where there are
                several.
            return_dict: whether to return an output of transformers, and not a tuple.
            cache: `past_key_values` by its name in transformers 5.24 and later.

        Returns:
            `last_hidden_state` (B, T, F), the CarriedState by the name that transformers has for it, and `hidden_states`.

        Raises:
            ValueError: there is no token to read.
        """
        if input_ids.shape[1] == 0:
            raise ValueError(
                f"input_ids has the shape {tuple(input_ids.shape)}: there is no token to read; give one at least, such as BOS"
            )
        tokens, reads = input_ids.masked_fill(self._pads(input_ids), 0), self.mask_of(input_ids, attention_mask)
        mask = None if bool(reads.all()) else reads
        cache = past_key_values if cache is None else cache
        before = cache if isinstance(cache, CarriedState) else self._initial_state(len(input_ids))
        state, found = before.parts, []
        with torch.autocast(input_ids.device.type, enabled=False):  # which would round the state at every step
            step = self.cell.stepper()
            for t in range(tokens.shape[1]):
                new = step(state, tokens[:, t])
                if mask is not None:
                    new = tuple(torch.where(mask[:, t], *each) for each in zip(new, state, strict=True))
                state = new
                found.append(self.cell.outputs(state))
        layers = [torch.stack(each).to(self.dtype) for each in zip(*found, strict=True)]  # (T, N, B)
        layers = [each.permute(2, 0, 1).contiguous() for each in layers]  # (B, T, N)
        features = layers[0] if len(layers) == 1 else torch.cat(layers, -1)
        keep = use_cache if use_cache is not None else self.config.use_cache and not self.training
        carried: Any = CarriedState(state, before.length + tokens.shape[1]) if keep else None
        output = BaseModelOutputWithPast(
            last_hidden_state=features,
            hidden_states=_all_hidden(self.config, layers, features, output_hidden_states),
            **{CACHE: carried},
        )
        return output if _as_dict(self.config, return_dict) else output.to_tuple()

    def mask_of(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Returns which tokens are to be read, (B, T) bool."""
        reads = ~self._pads(input_ids)
        if attention_mask is None:
            return reads
        if attention_mask.dim() == 3:
            attention_mask = _of_each_token(attention_mask.bool())
        return reads & attention_mask[:, -input_ids.shape[1] :].bool()

    def _pads(self, input_ids: torch.Tensor) -> torch.Tensor:
        return input_ids == self.config.num_tokens

    def _initial_state(self, batch: int) -> CarriedState:
        like = in_float32(self.readout.bias)
        return CarriedState(tuple(like.new_zeros(size, batch) for size in self.cell.sizes), 0)


class EsnlmForCausalLM(EsnlmPreTrainedModel, GenerationMixin):
    """The network with the logits of its readout."""

    model_class = EsnlmModel

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int = 0,
        cache: Any = None,
    ) -> Any:
        """Reads tokens and predicts the next ones.

        Args:
            input_ids, attention_mask, past_key_values, use_cache, output_hidden_states, return_dict, cache: as in EsnlmModel.
            labels: (B, T), the tokens again; -100, or the token that pads, where nothing is to be predicted. Where
                `attention_mask` is 0 nothing is to be predicted either, nor is what follows padding, as the first token after
                padding on the left.
            logits_to_keep: the logits of how many of the last tokens to compute; 0: of all.

        Returns:
            `loss` with labels (the mean over predictions, nats), `logits` (B, T, V + 1), the CarriedState, `hidden_states`.
        """
        read = self.model(
            input_ids,
            attention_mask=attention_mask,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            return_dict=True,
            cache=past_key_values if cache is None else cache,
        )
        logits = self.model.readout(read.last_hidden_state[:, -logits_to_keep if labels is None else 0 :])
        output = CausalLMOutputWithPast(
            loss=None if labels is None else self._loss(logits, labels, self.model.mask_of(input_ids, attention_mask)),
            logits=functional.pad(logits, (0, 1), value=PAD_LOGIT),
            hidden_states=read.hidden_states,
            **{CACHE: read.get(CACHE)},
        )
        return output if _as_dict(self.config, return_dict) else output.to_tuple()

    def prepare_inputs_for_generation(self, input_ids: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns the arguments of `forward` for the tokens that were not read yet."""
        carried = kwargs.get(CACHE)
        unread = carried.length if isinstance(carried, CarriedState) else 0
        names = ("attention_mask", CACHE, "use_cache", "output_hidden_states", "logits_to_keep")
        named = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        return {"input_ids": input_ids[:, unread:]} | named

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Tells transformers that it has no cache of its own for this model."""
        return False

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        pads = (labels[:, 1:] == self.config.num_tokens) | ~mask[:, 1:] | ~mask[:, :-1]
        targets = labels[:, 1:].masked_fill(pads, -100)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten())


def in_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in the type that the recurrence is computed in, which is at least float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _of_each_token(attention_mask: torch.Tensor) -> torch.Tensor:
    """Returns the mask (B, T) that a mask (B, T, T) is made of: whether each token sees itself.

    Raises:
        ValueError: a token that is read sees something else than those before it and itself.
    """
    reads, causal = attention_mask.diagonal(dim1=1, dim2=2), None
    if attention_mask.shape[1] == attention_mask.shape[2]:
        causal = torch.ones_like(attention_mask[0]).tril() & reads[:, None]
    if causal is None or not torch.equal(causal[reads], attention_mask[reads]):
        raise ValueError(
            f"attention_mask has the shape {tuple(attention_mask.shape)}, and does not let each token see those up to it: a"
            " recurrent network reads the tokens in their order; give a mask (B, T)"
        )
    return reads


def _all_hidden(
    config: EsnlmConfig, layers: list[torch.Tensor], features: torch.Tensor, asked: bool | None
) -> tuple[torch.Tensor, ...] | None:
    if not (config.output_hidden_states if asked is None else asked):
        return None
    return (*layers, features) if len(layers) > 1 else (features,)


def _as_dict(config: EsnlmConfig, asked: bool | None) -> bool:
    return getattr(config, "return_dict", True) if asked is None else asked
