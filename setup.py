"""What is in setup.cfg, and the README, whose links must lead somewhere from the package index too."""

import configparser
import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme() -> str:
    """The README with whole addresses for the files of the repository that it names."""
    parser = configparser.ConfigParser()
    parser.read(HERE / "setup.cfg", encoding="utf-8")
    url = parser["metadata"]["url"]
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{url}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{url}/blob/main/", text)


setup(long_description=readme(), long_description_content_type="text/markdown")
