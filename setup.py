"""Packaging goes through pbr; everything is said in setup.cfg and requirements.txt.

The version is that of ``laas_service/version.py``: tags of git do not count.
"""

import os
import re
from pathlib import Path

import setuptools

text = Path(__file__).with_name("laas_service").joinpath("version.py").read_text()
os.environ["PBR_VERSION"] = re.search('^VERSION = "(.+)"$', text, re.MULTILINE)[1]
setuptools.setup(setup_requires=["pbr>=6.1.1"], pbr=True)
