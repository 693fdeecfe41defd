#!/bin/sh
# Unpacks the libraries and headers of a cross build for another architecture into a folder, without
# installing anything and without touching the host's package database: arm64 for docs/aarch64.md,
# amd64 for tools/cross_cuda.sh.
set -eu

architecture=${1:?usage: tools/foreign_packages.sh arm64|amd64 <folder>}
root=${2:?usage: tools/foreign_packages.sh arm64|amd64 <folder>}
packages="libgtest-dev googletest libgmock-dev libbenchmark-dev librapidcheck-dev
  libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libpcre2-dev libpcre2-8-0
  libboost1.81-dev libcli11-dev libtomlplusplus-dev libtomlplusplus3 libssl-dev libssl3
  libzmq3-dev libzmq5 libsodium23 libpgm-5.3-0 libnorm1 libgssapi-krb5-2 libbsd0
  libzstd-dev libzstd1 libxxhash-dev libxxhash0 zlib1g zlib1g-dev
  libpng-dev libpng16-16 libjpeg62-turbo-dev libjpeg62-turbo libwebp-dev libwebp7"

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs" "$root"
: >"$state/status"
cat >"$state/apt.conf" <<CONF
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Sandbox::User "";
Dir::State "$state";
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
CONF
export APT_CONFIG="$state/apt.conf"

echo "Reading the $architecture package lists ..."
apt-get -qq update
echo "Downloading ..."
(cd "$state/debs" && apt-get -qq download $packages)
for deb in "$state"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
# Absolute links would lead to the host's files.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$root$(readlink "$link")")" "$link"
done
echo "Unpacked $(ls "$state/debs" | wc -l) packages into $root"
