"""Train an echo state network language model.

python train.py                                            the quickstart: a corpus of its own, three minutes
python train.py --config FILE [--section.key value ...]    an experiment; the command line wins over the file
python train.py --config FILE --plan                       parameters, memory, disk and time; trains nothing
python train.py --config FILE --allow-change KEY ...       resume although these settings are not as they were
"""

import argparse
import sys
from pathlib import Path

from esnlm.commands.base import Parser, exit_with

QUICKSTART = Path(__file__).parent / "configs" / "quickstart.yaml"


def main() -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=QUICKSTART, help="YAML file (default: %(default)s)")
    parser.add_argument("--plan", action="store_true", help="show what the run needs, and train nothing")
    which = "settings that may differ from those that the run was begun with, e.g. compute.kernel"
    parser.add_argument("--allow-change", nargs="+", default=(), metavar="KEY", help=which)
    arguments, overrides = parser.parse_known_args()

    from esnlm import config_io
    from esnlm.training import plan
    from esnlm.workflows.train import train_run

    experiment = config_io.read(arguments.config, overrides)
    return plan.show(experiment) if arguments.plan else train_run(experiment, arguments.allow_change)


if __name__ == "__main__":
    sys.exit(exit_with(main))
