"""The model families by the name that `model.family` gives: the one place where a family is listed."""

from esnlm.models.base import ModelConfig
from esnlm.models.echo_state import EchoStateConfig
from esnlm.models.gpt2 import GPT2Config
from esnlm.models.jaeger import JaegerConfig
from esnlm.models.lstm import LstmConfig

MODELS: dict[str, type[ModelConfig]] = {
    "esn": EchoStateConfig,
    "lstm": LstmConfig,
    "gpt2": GPT2Config,
    "jaeger": JaegerConfig,
}
