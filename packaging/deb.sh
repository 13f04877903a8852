#!/bin/sh
# Builds the Debian packages of the tree into dist/ (make deb). PYTHON has pip and setuptools.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cd "$tree"
mkdir -p dist "$build/laas"
"${PYTHON:-python3}" packaging/wheels.py "$build/laas/wheels"
cp -r packaging/debian etc slurm_plugin constraints.txt "$build/laas/"
version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' laas_service/version.py)
# A package of another commit of the same release is newer or older by its date.
stamp=$(git log -1 --format=%cd --date=format:%Y%m%d%H%M%S)
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
cat > "$build/laas/debian/changelog" <<END
laas ($version+$stamp) unstable; urgency=medium

  * Commit $(git rev-parse --short HEAD); see the release notes.

 -- The LaaS developers <laas@lists.example.org>  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
(cd "$build/laas" && dpkg-buildpackage --build=binary --unsigned-changes --no-pre-clean)
mv "$build"/laas*.deb "$build"/python3-nova-laas-filters*.deb "$build"/laas*.changes "$build"/laas*.buildinfo dist/
ls dist/*.deb
