"""`python -m experiments`: the studies and their configs, one line each."""

import sys

import configs
from experiments.harness import cli
from symbnn import names

if __name__ == "__main__":
    wanted = [argument for argument in sys.argv[1:] if argument not in ("-h", "--help")]
    if wanted and wanted[0] in configs.STUDIES:
        cli.main(wanted[0], wanted[1:])
    elif wanted:
        print(
            f"error: unknown study {wanted[0]!r}; {names.nearest(wanted[0], configs.STUDIES)}",
            file=sys.stderr,
        )
        sys.exit(cli.USAGE_ERROR)
    else:
        print(cli.list_studies())
