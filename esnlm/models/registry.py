"""The model families by the name that `model.family` gives: the one place where a family is listed."""

from pkgutil import resolve_name

from esnlm.models.base import ModelConfig

MODELS: dict[str, type[ModelConfig]] = {
    family: resolve_name(config)
    for family, config in {
        "esn": "esnlm.models.echo_state:EchoStateConfig",
        "lstm": "esnlm.models.lstm:LstmConfig",
        "gpt2": "esnlm.models.gpt2:GPT2Config",
        "jaeger": "esnlm.models.jaeger:JaegerConfig",
        "deep_readout": "esnlm.models.deep_readout:DeepReadoutConfig",
    }.items()
}
