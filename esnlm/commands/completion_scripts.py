"""Scripts for shells that complete a command line, made of the parsers of the commands.

They hold all words, so that Python is not started at the press of a key. What no list names is completed as a file.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Option(NamedTuple):
    """An option of a command."""

    flag: str
    help: str
    choices: tuple[str, ...]  # of its value; empty: files are offered
    takes_value: bool


class Command(NamedTuple):
    """A command with its options."""

    name: str
    help: str
    options: list[Option]
    words: tuple[str, ...]  # that it takes in place of files


def options_of(parser: argparse.ArgumentParser) -> list[Option]:
    """Returns the options of a parser, those that begin with two dashes."""
    return [
        Option(flag, (action.help or "") % _values(action), tuple(map(str, action.choices or ())), action.nargs != 0)
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--") and action.help is not argparse.SUPPRESS
    ]


def _values(action: argparse.Action) -> dict[str, object]:
    return {"default": action.default, "choices": ", ".join(map(str, action.choices or ()))}


def bash(commands: Sequence[Command]) -> str:
    """Returns the script for bash, from version 3.2 on."""
    values = [
        f'    "{command.name} {option.flag}") words="{" ".join(option.choices)}" ;;'
        for command in commands
        for option in command.options
        if option.choices
    ]
    flags = [
        f'      {command.name}) words="{" ".join(option.flag for option in command.options)}" ;;'
        for command in commands
    ]
    words = [f'      {command.name}) words="{" ".join(command.words)}" ;;' for command in commands if command.words]
    return "\n".join(
        [
            "# Completion of esnlm for bash.",
            "_esnlm() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words=""',
            '  local before="${COMP_WORDS[COMP_CWORD-1]}"',
            "  COMPREPLY=()",
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join(command.name for command in commands)}"',
            "  else",
            '    case "$command $before" in',
            *values,
            "    *)",
            '    case "$current" in',
            "    -*)",
            '      case "$command" in',
            *flags,
            "      esac ;;",
            "    *)",
            '      case "$command" in',
            *words,
            "      esac ;;",
            "    esac ;;",
            "    esac",
            "  fi",
            '  if [ -n "$words" ]; then',
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "  fi",
            "}",
            "complete -o default -F _esnlm esnlm",
            "",
        ]
    )


def zsh(commands: Sequence[Command]) -> str:
    """Returns the script for zsh, for a file of fpath and for eval."""

    def described(name: str, text: str) -> str:
        name, text = name.replace(":", "\\:"), text.replace("\n", " ")
        return _quoted(f"{name}:{text}" if text else name)

    lines = [
        "#compdef esnlm",
        "_esnlm() {",
        "  local -a found",
        "  if (( CURRENT == 2 )); then",
        f"    found=({' '.join(described(command.name, command.help) for command in commands)})",
        "    _describe command found",
        "    return",
        "  fi",
        '  case "$words[2] $words[CURRENT-1]" in',
    ]
    for command in commands:
        for option in command.options:
            if option.choices:
                choices = " ".join(map(_quoted, option.choices))
                lines.append(f"    {_quoted(f'{command.name} {option.flag}')}) compadd -- {choices}; return ;;")
    lines += ["  esac", '  if [[ "$words[CURRENT]" == -* ]]; then', '    case "$words[2]" in']
    for command in commands:
        options = " ".join(described(option.flag, option.help) for option in command.options)
        lines.append(f"      {command.name}) found=({options}) ;;")
    lines += ["    esac", "    _describe option found", "    return", "  fi", '  case "$words[2]" in']
    lines += [f"    {command.name}) compadd -- {' '.join(command.words)} ;;" for command in commands if command.words]
    lines += ["    *) _files ;;", "  esac", "}"]
    lines += ['if [ "$funcstack[1]" = "_esnlm" ]; then _esnlm "$@"; else compdef _esnlm esnlm; fi', ""]
    return "\n".join(lines)


def fish(commands: Sequence[Command]) -> str:
    """Returns the script for fish."""
    lines = ["# Completion of esnlm for fish."]
    for command in commands:
        lines.append(
            f"complete -c esnlm -n __fish_use_subcommand -f -a {command.name} -d {_quoted_for_fish(command.help)}"
        )
    for command in commands:
        start = f"complete -c esnlm -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{start} -f -a {_quoted_for_fish(' '.join(command.words))}")
        for option in command.options:
            line = f"{start} -l {option.flag.removeprefix('--')}"
            if option.choices:
                line += f" -x -a {_quoted_for_fish(' '.join(option.choices))}"
            elif option.takes_value:
                line += " -r"
            lines.append(f"{line} -d {_quoted_for_fish(option.help)}" if option.help else line)
    return "\n".join([*lines, ""])


SCRIPTS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
