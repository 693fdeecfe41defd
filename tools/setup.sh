#!/bin/sh
# Installs the Debian packages that are missing: `setup.sh build` for the product, `cuda` for what installs
# CUDA's compiler as well, `test` for its tests, `fuzz` for the fuzz targets, `deb` for packages, `packages` for checking them. Says what it installs; does nothing when all is there.
set -eu

packages="g++ cmake ninja-build libfmt-dev libcli11-dev libpcre2-dev libxxhash-dev libzstd-dev libboost1.81-dev libtomlplusplus-dev libssl-dev libzmq3-dev libpng-dev libjpeg62-turbo-dev libwebp-dev zlib1g-dev"
# The page's libraries, built into the binary.
packages="$packages libjs-marked libjs-katex fonts-katex node-prismjs"
optional=""   # not every archive has these
venv=""
python3 -c 'import venv, ensurepip' 2>/dev/null || venv="python3 python3-venv"
case "${1:-build}" in
  build) ;;
  cuda) packages="$packages $venv" ;;
  test)
    packages="$packages $venv libgtest-dev python3 binutils git redis-server haproxy openssl"
    command -v npm >/dev/null || packages="$packages nodejs npm"
    packages="$packages chromium chromium-driver mandoc zsh fish"
    ;;
  fuzz) packages="$packages clang-19 libclang-rt-19-dev" ;;
  deb) packages="$packages debhelper dpkg-dev" ;;
  packages)
    packages="$packages $venv debhelper dpkg-dev lintian debootstrap systemd systemd-container mandoc zsh fish"
    optional="ubuntu-keyring" ;;
  *) echo "usage: setup.sh build|cuda|test|fuzz|deb|packages" >&2; exit 2 ;;
esac

# missing_of PACKAGES...: those that are not installed.
missing_of() {
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf ' %s' "$package"
  done
}
# shellcheck disable=SC2086
missing=$(missing_of $packages)$(missing_of $optional)
[ -z "$missing" ] && exit 0

echo "installing:$missing"
sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "run as root, or install:$missing" >&2; exit 1; }
  sudo=sudo
fi
$sudo apt-get update -qq
for package in $optional; do
  apt-cache policy "$package" | grep -q 'Candidate: [^(]' && packages="$packages $package" || echo "$package cannot be had here"
done
# shellcheck disable=SC2086
missing=$(missing_of $packages)
[ -z "$missing" ] && exit 0
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
