import importlib

from esnlm.commands import COMMANDS
from esnlm.commands.arguments import LEVELS, Argument, ArgumentGroup, OneOf


def arguments_of(name: str) -> list[Argument]:
    """Returns the arguments of a command, also those in groups."""
    arguments: list[Argument] = []
    waiting = [*importlib.import_module(COMMANDS[name]).ARGUMENTS, LEVELS]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, OneOf | ArgumentGroup):
            waiting += each.arguments
        elif isinstance(each, Argument):
            arguments.append(each)
    return arguments
