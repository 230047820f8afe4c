"""The interface of a model family refuses a family that lacks a part of it."""

import pytest

from esnlm.models.base import ModelConfig, RecurrentModel


def test_a_recurrent_model_needs_a_cell_or_a_cell_s_methods():
    """Else the methods that it inherits would call themselves for ever."""
    with pytest.raises(TypeError, match="^Incomplete: .*`cell`.* initial_state, embed, advance, "):

        class Incomplete(RecurrentModel):
            def step(self, state, tokens):
                return state


def test_the_former_name_of_a_limit_is_not_lost_silently():
    with pytest.raises(TypeError, match="^Short: `longest` is now `max_length`"):

        class Short(ModelConfig):
            longest = 512
