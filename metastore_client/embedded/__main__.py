"""The command ``python -m metastore_client.embedded``."""

import sys

from metastore_client.embedded.server import main

if __name__ == "__main__":
    sys.exit(main())
