"""Prints a script that lets a shell complete esnlm's commands, options and settings.

bash:  esnlm completion bash > ~/.local/share/bash-completion/completions/esnlm
zsh:   echo 'eval "$(esnlm completion zsh)"' >> ~/.zshrc
fish:  esnlm completion fish > ~/.config/fish/completions/esnlm.fish
"""

import argparse

HELP = "prints a script that lets a shell complete commands, options and settings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that reads it: bash, zsh or fish")


def run(options: argparse.Namespace) -> None:
    from esnlm.commands import COMMANDS, parser_of
    from esnlm.commands.completion_scripts import SCRIPTS, Command, Option, options_of
    from esnlm.config_io import setting_names

    settings = [Option(f"--{name}", "", kinds, True) for name, kinds in setting_names().items()]
    commands = []
    for name in COMMANDS:
        parser = parser_of(name, f"esnlm {name}")
        its_settings = settings if parser.get_default("settings") is not None else []
        commands.append(Command(name, _help(name), [*options_of(parser), *its_settings], _words(parser)))
    print(SCRIPTS[options.shell](commands), end="")


def _help(name: str) -> str:
    import importlib

    from esnlm.commands import COMMANDS

    return importlib.import_module(COMMANDS[name]).HELP


def _words(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """Returns what stands in place of files where a command takes one of a few words."""
    places = [action for action in parser._actions if not action.option_strings and action.choices]
    return tuple(map(str, places[0].choices or ())) if places else ()
