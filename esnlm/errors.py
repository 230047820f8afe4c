"""The one exception that means: the person who called can mend this."""


class InputError(ValueError):
    """Bad input or configuration.

    The message is one line: what is wrong, with which value, in which file or field, and what to do.
    The commands print it as `error: ...` on stderr and exit with status 2; nothing half-written is left behind.
    """
