"""Packaging goes through pbr; everything is said in setup.cfg and requirements.txt."""

import setuptools

setuptools.setup(setup_requires=["pbr>=6.1.1"], pbr=True)
