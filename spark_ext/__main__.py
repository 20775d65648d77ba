"""`python -m spark_ext`: prints the settings for a spark-sql, Thrift or Connect server.

spark-sql $(python -m spark_ext)
python -m spark_ext --properties >> spark-defaults.conf
"""

from __future__ import annotations

import argparse
import sys

from spark_ext.set_up import settings
from tableformat.errors import TableFormatError

__all__ = ["main"]


def main() -> int:
    """Print the settings; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_ext", description="Print the Spark settings that mergeberg needs."
    )
    parser.add_argument(
        "--properties", action="store_true", help="as lines of spark-defaults.conf, not arguments"
    )
    form = "{} {}\n" if parser.parse_args().properties else "--conf {}={}\n"
    try:
        lines = [form.format(name, value) for name, value in settings().items()]
    except TableFormatError as error:
        sys.stderr.write(str(error) + "\n")
        return 1
    sys.stdout.writelines(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
