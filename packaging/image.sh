#!/bin/sh
# Builds an OCI image of the service from the packages in dist/ (make image): dist/laas-image.tar, an
# archive that registries and runtimes take, and dist/laas-image.cdx.json, what it is made of.
# Two builds of a commit from the same packages have equal digests.
# shellcheck disable=SC2016  # mmdebstrap gives each hook the new root as $1
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
cd "$tree"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' laas_service/version.py)
commit=$(git rev-parse HEAD)
made=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir "$build/packages"
for name in laas-doctor laas-service laas-client; do
    # shellcheck disable=SC2012  # names of packages are plain
    newest=$(ls -t dist/${name}_*.deb | head -n 1)
    cp "$newest" "$build/packages/$name.deb"
done
chmod -R a+rX "$build"

# The user has a fixed number, so that a chart can name it.
mmdebstrap --quiet --variant=apt --include=adduser,python3 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='chroot "$1" adduser --quiet --system --group --uid 901 --home /var/lib/laas --no-create-home laas' \
    --customize-hook="sync-in $build/packages /tmp" \
    --customize-hook='chroot "$1" sh -c "apt-get install --yes --no-install-recommends /tmp/*.deb && apt-get clean"' \
    --customize-hook='chroot "$1" dpkg-query --show --showformat="\${Package} \${Version} \${Architecture}\n" > '"$build/debian.txt" \
    --customize-hook='rm -rf "$1"/tmp/* "$1"/var/lib/apt/lists/* "$1"/var/log/* "$1"/var/cache/*' \
    bookworm "$build/layer.tar"
"${PYTHON:-python3}" packaging/sbom.py "$build/layer.tar" "$build/debian.txt" "$version" "$made" \
    > dist/laas-image.cdx.json

image="$build/image"
umoci init --layout "$image"
umoci new --image "$image:$version"
umoci raw add-layer --image "$image:$version" --history.created "$made" \
    --history.created_by "packaging/image.sh" "$build/layer.tar"
umoci config --image "$image:$version" --created "$made" --history.created "$made" \
    --config.user laas --config.workingdir /var/lib/laas --config.exposedports 8780/tcp \
    --config.volume /var/lib/laas --config.stopsignal SIGTERM \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --config.cmd laas-api --config.cmd --all-in-one \
    --config.label "org.opencontainers.image.title=laas" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.revision=$commit" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0" \
    --config.label "org.opencontainers.image.created=$made"
umoci gc --layout "$image"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    -C "$image" -cf dist/laas-image.tar .
ls -l dist/laas-image.tar
