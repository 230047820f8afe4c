"""The model families by their name in `model.family`. This is the only list of families."""

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
