"""Prints the version, and with --verbose those of packages, the devices and the cores."""

import argparse
import logging
import platform

from esnlm.base.versions import ESNLM, versions
from esnlm.commands.arguments import Argument

ARGUMENTS: list[Argument] = []


def run(args: argparse.Namespace) -> None:
    if args.level > logging.DEBUG:
        print(f"esnlm {ESNLM}")
        return
    from esnlm.machine.compute import describe_device

    device = describe_device()
    lines = versions() | {
        "system": platform.platform(),
        "devices": f"{device['count']}, {device['kind']} ({device['platform']})",
        "cores": device["cores"],
    }
    for name, value in lines.items():
        print(f"{name:16} {value}")
